//! The parts that commands share, made from the settings.

use std::path::{Path, PathBuf};

use whale_runtime::{
    Limits,
    build::{BuildError, Builder, SourceError, Toolchain},
    compile::{Cache, CompileError, Compiler},
    process::Program,
    sandbox::{Config, Harness, Sandbox, SandboxError},
};

use crate::{cli::LimitArgs, failure::Failure, settings};

/// What to do when a part of the set-up is missing.
pub(crate) const SET_UP: &str = "run `cargo xtask setup` in a checkout of the project";

/// Folders and helpers of this host.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) folder: PathBuf,
    pub(crate) program: Program,
    pub(crate) unsafe_no_jail: bool,
}

impl Context {
    pub(crate) fn new(unsafe_no_jail: bool) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::infrastructure(
                anyhow::Error::new(error).context("this program does not find itself"),
            )
        })?;
        Ok(Self {
            folder: settings::cache()?,
            program: Program::new(program),
            unsafe_no_jail,
        })
    }

    pub(crate) fn toolchain(&self) -> PathBuf {
        self.folder.join("toolchain.json")
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.folder.join("python-executor.wasm")
    }

    pub(crate) fn models(&self) -> PathBuf {
        self.folder.join("models")
    }

    pub(crate) fn cache(&self) -> Result<Cache, Failure> {
        Cache::open(self.folder.join("native")).map_err(|error| {
            Failure::infrastructure(anyhow::Error::new(error).context("the cache can't be used"))
        })
    }

    pub(crate) fn compiler(&self) -> Result<Compiler, Failure> {
        Ok(Compiler::new(
            self.program.clone(),
            self.cache()?,
            self.unsafe_no_jail,
        ))
    }

    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        let toolchain = Toolchain::read(&self.toolchain())
            .map_err(|error| Failure::infrastructure(error).hint(SET_UP))?;
        Ok(Builder {
            program: self.program.clone(),
            toolchain,
            folder: self.folder.join("builds"),
            gate: self.compiler()?,
            unsafe_no_jail: self.unsafe_no_jail,
        })
    }

    pub(crate) fn sandbox(&self, jobs: usize, limits: &Limits) -> Result<Sandbox, Failure> {
        let workers = processors().min(jobs.max(1));
        Ok(Sandbox::new(Config {
            program: self.program.clone(),
            cache: self.cache()?,
            workers,
            episodes_per_worker: jobs.div_ceil(workers).max(1),
            stack: limits.stack,
            unsafe_no_jail: self.unsafe_no_jail,
        }))
    }

    /// A harness from a module or from its folder, which is built.
    pub(crate) async fn load(
        &self,
        sandbox: &Sandbox,
        path: &Path,
        limits: &Limits,
    ) -> Result<Harness, Failure> {
        let wasm = if path.is_dir() {
            self.builder()?
                .build(path, limits)
                .await
                .map_err(build_failure)?
                .wasm
        } else {
            std::fs::read(path).map_err(|error| unreadable(path, error))?
        };
        let loaded = sandbox.load(&wasm, limits).await;
        loaded.map_err(|error| sandbox_failure(error, path))
    }
}

pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(crate) fn limits(arguments: &LimitArgs) -> Result<Limits, Failure> {
    let mut limits = Limits::default();
    for setting in &arguments.limit {
        limits
            .set(setting)
            .map_err(|error| Failure::user(error).hint("`whale-host limits` lists them all"))?;
    }
    Ok(limits)
}

/// A runtime for the commands that wait.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors().min(8))
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::infrastructure(
                anyhow::Error::new(error).context("no threads could be started"),
            )
        })
}

/// Waits for work; Ctrl-C ends it.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    runtime()?.block_on(async {
        tokio::select! {
            result = work => result,
            _ = tokio::signal::ctrl_c() => {
                Err(Failure::infrastructure(anyhow::anyhow!("stopped by Ctrl-C")))
            }
        }
    })
}

pub(crate) fn unreadable(path: &Path, error: std::io::Error) -> Failure {
    Failure::user(anyhow::Error::new(error).context(format!("`{}` can't be read", path.display())))
}

pub(crate) fn build_failure(error: BuildError) -> Failure {
    match &error {
        BuildError::Source(SourceError::Missing { .. }) => {
            Failure::user(error).hint("`whale-host new FOLDER` makes a harness to start from")
        }
        BuildError::Source(_)
        | BuildError::Manifest(_)
        | BuildError::Compiler { .. }
        | BuildError::Limit { .. }
        | BuildError::ReadOutside { .. }
        | BuildError::ReadEnvironment { .. } => Failure::harness(error),
        BuildError::Gate(CompileError::Jail(_)) | BuildError::Jail(_) => {
            Failure::infrastructure(error).hint(NO_JAIL)
        }
        BuildError::Gate(_) => Failure::harness(error),
        BuildError::Io { .. } => Failure::infrastructure(error),
    }
}

const NO_JAIL: &str = "`whale-host doctor` says what this kernel lacks; `--unsafe-no-jail` goes on \
                       without it, and untrusted code then has your rights";

pub(crate) fn sandbox_failure(error: SandboxError, path: &Path) -> Failure {
    let about = format!("`{}`", path.display());
    match &error {
        SandboxError::Compile(
            CompileError::Refused(_) | CompileError::Limit(_) | CompileError::Died { .. },
        ) => Failure::harness(anyhow::Error::new(error).context(about)),
        SandboxError::Compile(CompileError::Jail(_)) | SandboxError::Jail(_) => {
            Failure::infrastructure(error).hint(NO_JAIL)
        }
        SandboxError::PutAside(_) => Failure::harness(error),
        SandboxError::Compile(CompileError::Io { .. } | CompileError::Failed(_))
        | SandboxError::Worker(_) => Failure::infrastructure(error),
    }
}
