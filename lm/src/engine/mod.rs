//! Generation and scoring for many requests at once.
//!
//! One thread runs one batch. At each step the scheduler admits waiting sequences, gives each
//! running one its next tokens, and finishes those that are done; a sequence that finds no room is
//! put back and goes on later. Prompts with equal heads share the memory of these heads.
//!
//! On the processor a request's result is a function of the request alone: what else is in the
//! batch, what the prefix cache holds and whether it was put back change no bit of it. On other
//! devices products are rounded differently for batches of different sizes, so that tokens of
//! nearly equal probability may change places.

mod adapters;
mod constraint;
mod pages;
mod request;
mod sampler;
mod scheduler;
mod sequence;
#[cfg(test)]
mod tests;

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use self::{adapters::Adapters, constraint::Grammars, scheduler::Scheduler, sequence::Incoming};
pub use self::{
    request::{
        Constraint, Event, FinishReason, Generate, Generated, Request, SampledToken, Sampling,
        Scored, Work,
    },
    scheduler::Stats,
};
use crate::{LmError, Model, kernels::attention::PAGE};

/// The engine's settings.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Sequences in the running batch.
    pub sequences: usize,
    /// Requests that may wait; more are refused.
    pub waiting: usize,
    /// Bytes for keys and values.
    pub memory: usize,
    /// Tokens that one step computes at most.
    pub step_tokens: usize,
    /// The longest prompt and reply together, in tokens; the model's own where none.
    pub context: Option<usize>,
    /// Threads that compute; as many as there are processors where none.
    pub threads: Option<usize>,
    /// Equal prompt heads are computed once.
    pub share_prefixes: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            sequences: 64,
            waiting: 1024,
            memory: 1 << 30,
            step_tokens: 512,
            context: None,
            threads: None,
            share_prefixes: true,
        }
    }
}

/// Takes a request's events, on the engine's thread; it must not wait.
pub type Sink = Box<dyn FnMut(Event) + Send>;

/// A running engine. It stops when it is dropped.
pub struct Engine {
    shared: Arc<Shared>,
    sender: mpsc::Sender<Command>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// What handles and the engine's thread both see.
struct Shared {
    model: Arc<Model>,
    config: EngineConfig,
    context: usize,
    grammars: Grammars,
    adapters: Adapters,
    /// Requests that were taken and are not running yet.
    waiting: AtomicUsize,
    next: AtomicU64,
    stats: Mutex<Stats>,
}

enum Command {
    New(Box<Incoming>),
    /// Something was cancelled.
    Look,
    Stop,
}

/// A request on its way. Dropping it cancels the request, whose slots are free with the next step.
pub struct Ticket {
    cancelled: Arc<AtomicBool>,
    sender: mpsc::Sender<Command>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Release);
        let _ = self.sender.send(Command::Look);
    }
}

impl Engine {
    /// Starts an engine.
    ///
    /// # Errors
    /// When threads can't be started or the memory is too small for a page.
    pub fn start(model: Model, config: EngineConfig) -> Result<Self, LmError> {
        let model = Arc::new(model);
        let scheduler = Scheduler::new(Arc::clone(&model), &config)?;
        let limit = config.context.unwrap_or(usize::MAX).min(model.context());
        let shared = Arc::new(Shared {
            context: limit.min(scheduler.pages() * PAGE),
            grammars: Grammars::default(),
            adapters: Adapters::default(),
            waiting: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            stats: Mutex::new(Stats::default()),
            model,
            config,
        });
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(shared.config.threads.unwrap_or(0))
            .thread_name(|index| format!("lm-{index}"))
            .build()
            .map_err(|_| LmError::Internal("no threads could be started"))?;
        let (sender, receiver) = mpsc::channel();
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("lm-engine".to_owned())
            .spawn(move || pool.install(|| scheduler.run(receiver, &for_thread)))
            .map_err(|error| LmError::Io {
                path: "the engine's thread".to_owned(),
                error,
            })?;
        Ok(Self {
            shared,
            sender,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.shared.model
    }

    /// The longest prompt and reply together, in tokens: the model's, or what the memory holds.
    #[must_use]
    pub fn context(&self) -> usize {
        self.shared.context
    }

    /// The most requests that may wait.
    #[must_use]
    pub fn queue(&self) -> usize {
        self.shared.config.waiting
    }

    /// Takes a request; `sink` gets its events, the last of which says how it ended.
    ///
    /// # Errors
    /// When the request makes no sense, is too long, or too many wait.
    pub fn submit(&self, request: Request, sink: Sink) -> Result<Ticket, LmError> {
        request.check(self.shared.model.decoder.vocabulary(), self.shared.context)?;
        let adapter = match &request.adapter {
            Some(name) => Some(self.shared.adapters.get(name)?),
            None => None,
        };
        let matcher = match &request.work {
            Work::Generate(Generate {
                constraint: Some(constraint),
                ..
            }) => Some(
                self.shared
                    .grammars
                    .matcher(constraint, &self.shared.model)?,
            ),
            _ => None,
        };
        let limit = self.shared.config.waiting;
        let taken = self
            .shared
            .waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n < limit).then_some(n + 1)
            });
        if let Err(waiting) = taken {
            return Err(LmError::Busy { waiting, limit });
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let incoming = Incoming {
            id: self.shared.next.fetch_add(1, Ordering::Relaxed),
            request,
            adapter,
            matcher,
            sink,
            cancelled: Arc::clone(&cancelled),
        };
        let sent = self.sender.send(Command::New(Box::new(incoming)));
        if sent.is_err() {
            self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(LmError::Stopped);
        }
        Ok(Ticket {
            cancelled,
            sender: self.sender.clone(),
        })
    }

    /// Runs a generation to its end and waits for it.
    ///
    /// # Errors
    /// As [`Self::submit`], and when the computation fails.
    pub fn generate(&self, request: Request) -> Result<Generated, LmError> {
        match self.wait(request)? {
            Event::Generated(generated) => Ok(generated),
            _ => Err(LmError::Internal("a generation ended as something else")),
        }
    }

    /// Runs a scoring to its end and waits for it.
    ///
    /// # Errors
    /// As [`Self::submit`], and when the computation fails.
    pub fn score(&self, request: Request) -> Result<Scored, LmError> {
        match self.wait(request)? {
            Event::Scored(scored) => Ok(scored),
            _ => Err(LmError::Internal("a scoring ended as something else")),
        }
    }

    fn wait(&self, request: Request) -> Result<Event, LmError> {
        let (sender, receiver) = mpsc::channel();
        let sink = Box::new(move |event: Event| {
            let _ = sender.send(event);
        });
        let _ticket = self.submit(request, sink)?;
        loop {
            match receiver.recv().map_err(|_| LmError::Stopped)? {
                Event::Token { .. } => {}
                Event::Failed(error) => return Err(error),
                done => return Ok(done),
            }
        }
    }

    /// Loads a PEFT folder under a name; requests that run keep what they began with. A probe
    /// proves that it moves the model's logits.
    ///
    /// # Errors
    /// When it can't be read, does not fit the model, or changes nothing.
    pub fn load_adapter(&self, name: &str, folder: &Path) -> Result<(), LmError> {
        let adapter = crate::Adapter::load(folder)?;
        self.use_adapter(name, adapter, &folder.display().to_string())
    }

    /// The same with an adapter in memory; `origin` names it in errors.
    ///
    /// # Errors
    /// When it does not fit the model or changes nothing.
    pub fn use_adapter(
        &self,
        name: &str,
        adapter: crate::Adapter,
        origin: &str,
    ) -> Result<(), LmError> {
        self.shared
            .adapters
            .insert(name, adapter, origin, &self.shared.model.decoder)
    }

    /// Forgets an adapter.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn unload_adapter(&self, name: &str) -> Result<(), LmError> {
        self.shared.adapters.remove(name)
    }

    /// The adapters' names and hashes.
    #[must_use]
    pub fn adapters(&self) -> Vec<(String, String)> {
        self.shared.adapters.list()
    }

    /// What the engine has done and holds.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = *self
            .shared
            .stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        stats.waiting = self.shared.waiting.load(Ordering::Acquire);
        stats
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.sender.send(Command::Stop);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
