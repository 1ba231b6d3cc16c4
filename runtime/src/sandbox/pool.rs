//! The host's side: starts workers, hands episodes to them, notices when they die.

use std::{
    collections::HashMap,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    process::Stdio,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use thiserror::Error;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    process::{Child, ChildStderr},
    sync::{Semaphore, SemaphorePermit, mpsc},
    time::timeout,
};

use super::{
    frames::{FrameReader, Outbox, encode},
    protocol::{Ended, FromWorker, Hello, HostCall, ToWorker},
};
use crate::{
    Digest, Limits,
    compile::{Cache, CompileError, Compiled, Compiler, Purpose},
    gate::Shape,
    jail::{Policy, Resources},
    process::{self, Program},
    roles::{EXIT_JAIL, Role},
};

/// How often a module may kill a worker that ran it alone before it is put aside.
const KILLS: u32 = 3;
/// For a worker to close its jail and say that it is ready.
const START: Duration = Duration::from_secs(30);

/// How a sandbox is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The program that plays the roles of helpers.
    pub program: Program,
    /// Native code on disk.
    pub cache: Cache,
    /// Worker processes; one a processor is a good number.
    pub workers: usize,
    /// Episodes in flight in each worker.
    pub episodes_per_worker: usize,
    /// The call stack of harnesses, in bytes; one value for all.
    pub stack: u64,
    /// Run without what the kernel does not offer of a jail. Only ever a person's own choice.
    pub unsafe_no_jail: bool,
}

/// A harness that is ready to run.
#[derive(Clone, Debug)]
pub struct Harness {
    /// Of the module as a file; names the harness everywhere.
    pub digest: Digest,
    /// What the gate saw.
    pub shape: Shape,
    pub(crate) artifact: Digest,
}

/// Why the sandbox itself could not do something.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The harness could not be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Workers can't be jailed here.
    #[error("a worker process could not be jailed: {0}")]
    Jail(String),
    /// A worker could not be started.
    #[error("a worker process could not be started: {0}")]
    Worker(String),
    /// The harness has killed too many workers.
    #[error("the harness {} is put aside: it has killed {KILLS} workers", .0.short())]
    PutAside(Digest),
}

/// Worker processes and the means to make native code for them.
#[derive(Debug)]
pub struct Sandbox {
    config: Config,
    compiler: Compiler,
    slots: Vec<Slot>,
    turn: AtomicUsize,
    episodes: AtomicU64,
    kills: Mutex<HashMap<Digest, u32>>,
}

#[derive(Debug)]
struct Slot {
    worker: tokio::sync::Mutex<Option<Arc<Worker>>>,
    room: Semaphore,
}

/// What an episode hears from its worker.
#[derive(Debug)]
pub(crate) enum Event {
    Call(HostCall),
    Done(Ended),
    /// The worker is gone; the text says how.
    Died(String),
}

/// An episode's place in a worker.
pub(crate) struct Ticket<'a> {
    pub(crate) episode: u64,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    worker: Arc<Worker>,
    /// Nothing for a worker that runs this episode alone and goes with it.
    room: Option<SemaphorePermit<'a>>,
}

impl Sandbox {
    /// Sets up a sandbox; workers start when they are first needed.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let compiler = Compiler::new(
            config.program.clone(),
            config.cache.clone(),
            config.unsafe_no_jail,
        );
        let slot = || Slot {
            worker: tokio::sync::Mutex::default(),
            room: Semaphore::new(config.episodes_per_worker.max(1)),
        };
        let slots = (0..config.workers.max(1)).map(|_| slot()).collect();
        Self {
            compiler,
            slots,
            config,
            turn: AtomicUsize::new(0),
            episodes: AtomicU64::new(0),
            kills: Mutex::default(),
        }
    }

    /// Checks a module, makes native code of it if there is none, and keeps the module for replays.
    ///
    /// # Errors
    /// When it is refused or can't be compiled within the limits.
    pub async fn load(&self, wasm: &[u8], limits: &Limits) -> Result<Harness, SandboxError> {
        let Compiled { module, key, shape } = self
            .compiler
            .compile(wasm, Purpose::Harness, limits)
            .await?;
        self.config
            .cache
            .keep_module(&module, wasm)
            .map_err(|error| CompileError::Io {
                what: "the module could not be kept for replays".to_owned(),
                error,
            })?;
        Ok(Harness {
            digest: module,
            shape,
            artifact: key,
        })
    }

    /// What turns wasm into native code here.
    #[must_use]
    pub fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    /// The process ids of the workers that run now.
    pub async fn worker_ids(&self) -> Vec<u32> {
        let mut ids = Vec::new();
        for slot in &self.slots {
            ids.extend(
                slot.worker
                    .lock()
                    .await
                    .as_ref()
                    .filter(|w| w.is_alive())
                    .map(|w| w.id),
            );
        }
        ids
    }

    /// A place in a worker that others share.
    pub(crate) async fn ticket(&self, harness: &Harness) -> Result<Ticket<'_>, SandboxError> {
        if self
            .kills()
            .get(&harness.digest)
            .is_some_and(|kills| *kills >= KILLS)
        {
            return Err(SandboxError::PutAside(harness.digest.clone()));
        }
        let slot = &self.slots[self.turn.fetch_add(1, Ordering::Relaxed) % self.slots.len()];
        let closed = |_| SandboxError::Worker("the sandbox is closed".to_owned());
        let room = slot.room.acquire().await.map_err(closed)?;
        let mut current = slot.worker.lock().await;
        let worker = match current.as_ref().filter(|worker| worker.is_alive()) {
            Some(worker) => Arc::clone(worker),
            None => {
                let worker = Worker::start(&self.config).await?;
                *current = Some(Arc::clone(&worker));
                worker
            }
        };
        drop(current);
        Ok(self.enter(worker, Some(room)))
    }

    /// A worker of its own, for an episode whose first worker died under it.
    pub(crate) async fn solo_ticket(&self) -> Result<Ticket<'_>, SandboxError> {
        Ok(self.enter(Worker::start(&self.config).await?, None))
    }

    fn enter<'a>(&self, worker: Arc<Worker>, room: Option<SemaphorePermit<'a>>) -> Ticket<'a> {
        let episode = self.episodes.fetch_add(1, Ordering::Relaxed);
        let events = worker.listen(episode);
        Ticket {
            episode,
            events,
            worker,
            room,
        }
    }

    /// Notes that this harness killed a worker that ran nothing else.
    pub(crate) fn blame(&self, harness: &Harness) {
        *self.kills().entry(harness.digest.clone()).or_default() += 1;
    }

    fn kills(&self) -> MutexGuard<'_, HashMap<Digest, u32>> {
        self.kills.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all workers and waits until they are gone.
    pub async fn close(&self) {
        for slot in &self.slots {
            if let Some(worker) = slot.worker.lock().await.take() {
                worker.end("the sandbox was closed").await;
            }
        }
    }
}

impl Ticket<'_> {
    pub(crate) fn send(&self, message: &ToWorker) -> Result<(), SandboxError> {
        self.worker
            .outbox
            .send(message)
            .map_err(|error| SandboxError::Worker(error.to_string()))
    }

    /// Kills the worker, and with it whatever else runs in it: other episodes notice and start
    /// again, alone.
    pub(crate) async fn kill_worker(&self, why: &str) {
        self.worker.end(why).await;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // An episode that is dropped before its end, such as by Ctrl-C, is cancelled.
        if self.worker.forget(self.episode) {
            let _ = self.send(&ToWorker::Cancel {
                episode: self.episode,
            });
        }
        if self.room.is_none() {
            self.worker.outbox.close();
        }
    }
}

/// What an ending worker said on its standard error.
async fn last_words(stderr: Option<ChildStderr>) -> String {
    let mut said = String::new();
    if let Some(stderr) = stderr {
        let mut stderr = stderr.take(4096);
        let _ = timeout(Duration::from_secs(1), stderr.read_to_string(&mut said)).await;
    }
    said.trim().to_owned()
}

#[derive(Debug)]
struct Worker {
    id: u32,
    outbox: Outbox,
    listeners: Mutex<HashMap<u64, mpsc::UnboundedSender<Event>>>,
    alive: AtomicBool,
    child: tokio::sync::Mutex<Child>,
    /// Why it was killed, noted before it is.
    reason: Mutex<Option<String>>,
}

impl Worker {
    async fn start(config: &Config) -> Result<Arc<Self>, SandboxError> {
        let failed = |error: std::io::Error| SandboxError::Worker(error.to_string());
        let (ours, theirs) = StdUnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let stream = UnixStream::from_std(ours).map_err(failed)?;
        let mut child = config
            .program
            .command(Role::Worker)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut stderr = child.stderr.take();
        let resources = Resources {
            descriptors: Some(256),
            ..Resources::default()
        };
        let hello = Hello {
            policy: Policy {
                read: vec![config.cache.folder().to_owned()],
                unsafe_no_jail: config.unsafe_no_jail,
                ..Policy::compute(resources)
            },
            stack: config.stack,
            cache: config.cache.folder().to_owned(),
        };
        let (from, mut to) = stream.into_split();
        let mut frames = FrameReader::new(from);
        let mut frame = Vec::new();
        encode(&hello, &mut frame).map_err(failed)?;
        // A worker that can't take this has ended, and says why by its status.
        let _ = to.write_all(&frame).await;
        let first = timeout(START, frames.next::<FromWorker>()).await;
        if !matches!(first, Ok(Ok(Some(FromWorker::Ready)))) {
            process::end(&mut child).await;
            let said = last_words(stderr.take()).await;
            let status = child.try_wait().ok().flatten();
            return Err(match status {
                Some(status) if status.code() == Some(i32::from(EXIT_JAIL)) => {
                    SandboxError::Jail(said)
                }
                Some(status) => SandboxError::Worker(format!("{status}: {said}")),
                None => SandboxError::Worker(said),
            });
        }
        let worker = Arc::new(Self {
            id: child.id().unwrap_or_default(),
            outbox: Outbox::default(),
            listeners: Mutex::default(),
            alive: AtomicBool::new(true),
            child: tokio::sync::Mutex::new(child),
            reason: Mutex::default(),
        });
        let writing = Arc::clone(&worker);
        tokio::spawn(async move {
            // A broken pipe shows on the reading side as well, which says so to everyone.
            let _ = writing.outbox.drain_to(to).await;
        });
        let reading = Arc::clone(&worker);
        tokio::spawn(async move {
            let end = loop {
                match frames.next::<FromWorker>().await {
                    Ok(Some(message)) => reading.dispatch(message),
                    Ok(None) => break None,
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                        break None;
                    }
                    Err(error) => break Some(format!("it sent nonsense: {error}")),
                }
            };
            let said = last_words(stderr).await;
            reading.died(end, &said).await;
        });
        Ok(worker)
    }

    fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<u64, mpsc::UnboundedSender<Event>>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, episode: u64) -> mpsc::UnboundedReceiver<Event> {
        let (sender, receiver) = mpsc::unbounded_channel();
        // Under the lock under which the dead tell their listeners: this one is told by them, or
        // sees here that it comes too late.
        let mut listeners = self.listeners();
        if !self.is_alive() {
            let _ = sender.send(Event::Died("it had ended before".to_owned()));
        }
        listeners.insert(episode, sender);
        receiver
    }

    /// Whether the episode was still listened for.
    fn forget(&self, episode: u64) -> bool {
        self.listeners().remove(&episode).is_some()
    }

    fn dispatch(&self, message: FromWorker) {
        // An episode that nobody listens for has been given up: what comes late is dropped.
        match message {
            FromWorker::Ready => {}
            FromWorker::Call { episode, call } => {
                if let Some(listener) = self.listeners().get(&episode) {
                    let _ = listener.send(Event::Call(call));
                }
            }
            FromWorker::Done { episode, ended } => {
                if let Some(listener) = self.listeners().remove(&episode) {
                    let _ = listener.send(Event::Done(ended));
                }
            }
        }
    }

    async fn died(&self, end: Option<String>, said: &str) {
        self.alive.store(false, Ordering::Release);
        let status = {
            let mut child = self.child.lock().await;
            process::end(&mut child).await;
            child.try_wait().ok().flatten()
        };
        let reason = self
            .reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let how = reason.or(end).unwrap_or_else(|| match status {
            Some(status) if said.is_empty() => status.to_string(),
            Some(status) => format!("{status}: {said}"),
            None => "it is gone".to_owned(),
        });
        tracing::debug!(worker = self.id, how, "a worker ended");
        for (_, listener) in self.listeners().drain() {
            let _ = listener.send(Event::Died(how.clone()));
        }
        self.outbox.close();
    }

    async fn end(&self, why: &str) {
        self.reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(why.to_owned());
        self.alive.store(false, Ordering::Release);
        process::end(&mut *self.child.lock().await).await;
    }
}
