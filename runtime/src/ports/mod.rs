//! What a host offers to harnesses, as traits, and implementations of them.

mod openai;
mod scripted;
mod throttle;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::time::Instant;

pub use openai::{OpenAi, OpenAiConfig, OpenAiError, Secret};
pub use scripted::{ScriptError, Scripted};

use crate::{
    Limits,
    contract::{Completion, Document, Execution, Hit, Prompt, Request, Turn},
};

/// The ports that the episodes of one run share.
#[derive(Clone)]
pub struct Ports {
    /// The model.
    pub model: Arc<dyn ChatModel>,
    /// A search index, if the task has one.
    pub search: Option<Arc<dyn SearchIndex>>,
    /// A code executor, if the task has one.
    pub code: Option<Arc<dyn CodeExecutor>>,
}

/// Why a port did not do what it was asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PortError {
    /// The request makes no sense; the harness is told.
    #[error("{0}")]
    Invalid(String),
    /// This port can't do that at all; the harness is told.
    #[error("{0}")]
    Unavailable(String),
    /// It failed for no fault of the harness, which is not told: the episode is run again.
    #[error("{0}")]
    Infrastructure(String),
}

/// A request to a model, with what the host adds.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// What the harness asks.
    pub request: &'a Request,
    /// The longest reply, in tokens.
    pub max_tokens: u32,
    /// The seed of its sampling.
    pub seed: u64,
    /// When the episode is over.
    pub deadline: Instant,
}

/// A model's reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    /// What the harness sees.
    pub completion: Completion,
    /// What the model read and wrote, token by token, if the port knows.
    pub tokens: Option<Tokens>,
}

/// Token ids, as training needs them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Tokens {
    /// What the model read.
    pub prompt: Vec<u32>,
    /// What it wrote, the token that ended its turn included.
    pub sampled: Vec<u32>,
    /// The natural logarithm of the probability of each sampled token, before temperature and
    /// truncation.
    pub log_probabilities: Vec<f32>,
}

/// A language model.
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// What records call it; never an address or a key.
    fn name(&self) -> String;

    /// What its replies depend on beside the request: weights, adapter, script. Results under
    /// different identities do not belong together.
    fn identity(&self) -> String {
        self.name()
    }

    /// One reply.
    async fn complete(&self, request: ModelRequest<'_>) -> Result<ModelReply, PortError>;

    /// The natural logarithm of each continuation's likelihood after the prompt.
    async fn score(
        &self,
        _prompt: &Prompt,
        _continuations: &[String],
        _deadline: Instant,
    ) -> Result<Vec<f64>, PortError> {
        Err(PortError::Unavailable(
            "this model can't score continuations".to_owned(),
        ))
    }

    /// How many tokens its tokenizer makes of a text.
    fn count_tokens(&self, _text: &str) -> Result<u32, PortError> {
        Err(PortError::Unavailable(
            "this model does not tell how it counts tokens".to_owned(),
        ))
    }

    /// The longest prompt and reply together, in tokens.
    fn context_limit(&self) -> Result<u32, PortError> {
        Err(PortError::Unavailable(
            "this model does not tell its context limit".to_owned(),
        ))
    }
}

/// A search index.
#[async_trait]
pub trait SearchIndex: Send + Sync {
    /// The `k` best passages, best first.
    async fn query(&self, text: &str, k: u32, deadline: Instant) -> Result<Vec<Hit>, PortError>;

    /// A whole document.
    async fn open(&self, id: &str, deadline: Instant) -> Result<Document, PortError>;
}

/// Bounds on one program.
#[derive(Clone, Copy, Debug)]
pub struct CodeLimits {
    /// By the clock.
    pub wall: Duration,
    /// Bytes of the interpreter's memory.
    pub memory: u64,
    /// Bytes that it may print.
    pub output: u64,
    /// Of its random numbers and its clock.
    pub seed: u64,
}

impl CodeLimits {
    /// The bounds of a program in an episode that ends at `deadline`.
    #[must_use]
    pub fn of(limits: &Limits, seed: u64, deadline: Instant) -> Self {
        let wall = Duration::from_millis(limits.code_wall);
        let left = deadline.saturating_duration_since(Instant::now());
        Self {
            wall: wall.min(left),
            memory: limits.code_memory,
            output: limits.code_output,
            seed,
        }
    }
}

/// Runs programs that models wrote.
#[async_trait]
pub trait CodeExecutor: Send + Sync {
    /// Runs a program to its end or to its bounds; a program that fails is no error.
    async fn execute(
        &self,
        language: &str,
        source: &str,
        stdin: &str,
        limits: CodeLimits,
    ) -> Result<Execution, PortError>;
}

/// The environment of one episode.
#[async_trait]
pub trait Environment: Send {
    /// What there is to see.
    async fn observe(&mut self) -> Result<String, PortError>;

    /// Takes a turn.
    async fn act(&mut self, text: &str) -> Result<Turn, PortError>;

    /// Begins again, for an episode whose worker died.
    fn restart(&mut self);
}
