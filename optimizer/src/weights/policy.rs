//! Whoever samples while the weights change.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use whale_runtime::ports::ChatModel;

/// What is served.
#[derive(Clone, Copy, Debug)]
pub enum Served<'a> {
    /// The model as it was.
    Base,
    /// The model with an adapter: a PEFT folder, and the hash of what is in it.
    Adapter(&'a Path, &'a str),
    /// Other weights of the same model: a folder with safetensors.
    Weights(&'a Path),
}

/// Why something can't be served.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(pub String);

/// An engine, or a server, whose weights can be changed while it runs.
#[async_trait]
pub trait Policy: Send + Sync {
    /// The model as episodes call it, with what was served last. Its `identity` changes with it.
    fn model(&self) -> Arc<dyn ChatModel>;

    /// Serves something else from now on; what was computed under other weights is out of reach.
    async fn serve(&self, what: Served<'_>) -> Result<(), PolicyError>;

    /// The natural logarithm of the probability of each token of each text but its first.
    async fn score(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, PolicyError>;

    /// Token ids as text, as the tokenizer that belongs to the trained model has it.
    fn decode(&self, ids: &[u32]) -> Option<String>;

    /// What tells this tokenizer from others.
    fn tokenizer(&self) -> String;
}
