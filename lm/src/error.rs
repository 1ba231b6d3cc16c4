//! What can go wrong with a model.

use thiserror::Error;

/// What can go wrong with a model.
#[derive(Debug, Error)]
pub enum LmError {
    /// The file can't be read.
    #[error("the model `{path}` can't be read: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is no GGUF file, or is damaged.
    #[error("`{path}` is no model in the GGUF format, or is damaged: {message}")]
    Format {
        /// The file.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// The architecture is not one that is known here.
    #[error("the model's architecture is `{0}`; this host runs `llama`")]
    Architecture(String),
    /// The tokenizer in the file is not one that is known here.
    #[error("the model's tokenizer can't be used: {0}")]
    Tokenizer(String),
    /// The chat template in the file does not work.
    #[error("the model's chat template does not work: {0}")]
    Template(String),
    /// The model has no chat template.
    #[error("the model has no chat template: give it a raw prompt")]
    NoTemplate,
    /// The prompt leaves no room for a reply.
    #[error("the prompt has {tokens} tokens; the model's context has {limit}")]
    TooLong {
        /// The prompt's length.
        tokens: usize,
        /// The longest prompt and reply together.
        limit: usize,
    },
    /// The computation failed.
    #[error("the model failed: {0}")]
    Compute(#[from] candle_core::Error),
}
