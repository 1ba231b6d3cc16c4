//! The host's side: a few processes, each with the interpreter loaded, one program at a time.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    path::PathBuf,
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use thiserror::Error;
use tokio::{
    io::AsyncWriteExt as _,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::Child,
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use super::protocol::{Hello, Job, Said};
use crate::{
    Limits,
    compile::{CompileError, Compiler, Purpose},
    contract::{Execution, Status},
    jail::{Policy, Resources},
    ports::{CodeExecutor, CodeLimits, PortError},
    process::{self, Program},
    roles::Role,
    sandbox::{FrameReader, encode},
};

/// A process is replaced after so many programs: what a fault in one might leave does not pile up.
const RECYCLE: u32 = 1_000;
/// For a process to load the interpreter.
const LOAD: Duration = Duration::from_secs(60);
/// For the interpreter to be started and compiled, once.
const PREPARE: u64 = 15 * 60_000;

/// Why there is no executor.
#[derive(Debug, Error)]
pub enum ExecutorError {
    /// The interpreter's module could not be read.
    #[error("the Python interpreter `{path}` can't be read: {error}")]
    Guest {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// It could not be started or compiled.
    #[error("the Python interpreter could not be prepared")]
    Prepare(#[from] CompileError),
}

/// An executor for Python.
#[derive(Debug)]
pub struct Executor {
    program: Program,
    artifact: PathBuf,
    unsafe_no_jail: bool,
    idle: Mutex<Vec<Process>>,
    room: Semaphore,
}

impl Executor {
    /// Sets up an executor of at most `processes` programs at once. The first time, the interpreter
    /// is started and compiled, which takes a minute or so; after that it comes from the cache.
    ///
    /// # Errors
    /// When the interpreter's module is missing or does not start.
    pub async fn prepare(
        program: Program,
        compiler: &Compiler,
        guest: PathBuf,
        processes: usize,
        unsafe_no_jail: bool,
    ) -> Result<Self, ExecutorError> {
        let wasm = std::fs::read(&guest).map_err(|error| ExecutorError::Guest {
            path: guest.display().to_string(),
            error,
        })?;
        let limits = Limits {
            compile_wall: PREPARE,
            artifact_bytes: 1 << 30,
            ..Limits::default()
        };
        let compiled = compiler.compile(&wasm, Purpose::Executor, &limits).await?;
        Ok(Self {
            program,
            artifact: compiler.cache().artifact(&compiled.key),
            unsafe_no_jail,
            idle: Mutex::default(),
            room: Semaphore::new(processes.max(1)),
        })
    }

    fn take_idle(&self) -> Option<Process> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    fn give_back(&self, process: Process) {
        if process.programs < RECYCLE {
            self.idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(process);
        }
    }

    async fn process(&self) -> Result<Process, PortError> {
        // One that died while it was idle is passed over.
        while let Some(mut process) = self.take_idle() {
            if matches!(process.child.try_wait(), Ok(None)) {
                return Ok(process);
            }
        }
        let start = Process::start(&self.program, &self.artifact, self.unsafe_no_jail);
        let started = timeout(LOAD, start).await;
        started
            .map_err(|_| "it did not load in time".to_owned())
            .flatten()
            .map_err(|error| {
                PortError::Infrastructure(format!(
                    "the code executor could not be started: {error}"
                ))
            })
    }
}

#[async_trait]
impl CodeExecutor for Executor {
    async fn execute(
        &self,
        language: &str,
        source: &str,
        stdin: &str,
        limits: CodeLimits,
    ) -> Result<Execution, PortError> {
        if !matches!(language, "python" | "python3" | "py") {
            return Err(PortError::Unavailable(format!(
                "the code executor runs python, not `{}`",
                language.escape_debug()
            )));
        }
        let closed = |_| PortError::Infrastructure("the code executor is closed".to_owned());
        let _room = self.room.acquire().await.map_err(closed)?;
        let mut process = self.process().await?;
        let job = Job {
            source: source.to_owned(),
            stdin: stdin.to_owned(),
            seed: limits.seed,
            memory: limits.memory,
            output: limits.output,
        };
        let mut printed = Printed {
            left: limits.output,
            ..Printed::default()
        };
        let deadline = Instant::now() + limits.wall;
        let ended = timeout_at(deadline, process.run(&job, &mut printed)).await;
        let status = match ended {
            Ok(Some(status)) => {
                self.give_back(process);
                status
            }
            Ok(None) => {
                process::end(&mut process.child).await;
                Status::Killed
            }
            Err(_) => {
                process::end(&mut process.child).await;
                Status::Timeout
            }
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Execution {
            status,
            stdout: text(printed.stdout),
            stderr: text(printed.stderr),
        })
    }
}

/// What a program has printed, which is bounded here again: its process is not believed.
#[derive(Debug, Default)]
struct Printed {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    left: u64,
}

impl Printed {
    fn room(&mut self, bytes: &[u8]) -> usize {
        let kept = bytes
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= kept as u64;
        kept
    }
}

#[derive(Debug)]
struct Process {
    child: Child,
    to: OwnedWriteHalf,
    from: FrameReader<OwnedReadHalf>,
    programs: u32,
}

impl Process {
    async fn start(
        program: &Program,
        artifact: &std::path::Path,
        unsafe_no_jail: bool,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let (ours, theirs) = StdUnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let (from, to) = UnixStream::from_std(ours).map_err(failed)?.into_split();
        let child = program
            .command(Role::Executor)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let resources = Resources {
            descriptors: Some(32),
            ..Resources::default()
        };
        let policy = Policy {
            read: vec![artifact.to_owned()],
            unsafe_no_jail,
            ..Policy::compute(resources)
        };
        let mut process = Self {
            child,
            to,
            from: FrameReader::new(from),
            programs: 0,
        };
        process
            .send(&Hello {
                policy,
                artifact: artifact.to_owned(),
            })
            .await
            .map_err(failed)?;
        match process.from.next().await {
            Ok(Some(Said::Ready)) => Ok(process),
            Ok(_) => Err("its process ended while it loaded".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn send(&mut self, value: &impl serde::Serialize) -> std::io::Result<()> {
        let mut frame = Vec::new();
        encode(value, &mut frame)?;
        self.to.write_all(&frame).await
    }

    /// How the program ended, or nothing if its process did.
    async fn run(&mut self, job: &Job, printed: &mut Printed) -> Option<Status> {
        self.programs += 1;
        self.send(job).await.ok()?;
        loop {
            match self.from.next::<Said>().await {
                Ok(Some(Said::Stdout(bytes))) => {
                    let kept = printed.room(&bytes);
                    printed.stdout.extend_from_slice(&bytes[..kept]);
                }
                Ok(Some(Said::Stderr(bytes))) => {
                    let kept = printed.room(&bytes);
                    printed.stderr.extend_from_slice(&bytes[..kept]);
                }
                Ok(Some(Said::Ended(status))) => return Some(status),
                Ok(Some(Said::Ready) | None) | Err(_) => return None,
            }
        }
    }
}
