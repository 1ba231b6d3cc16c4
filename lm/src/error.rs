//! What can go wrong with a model.

use thiserror::Error;

/// What can go wrong with a model.
#[derive(Debug, Error)]
pub enum LmError {
    /// A file can't be read or written.
    #[error("`{path}`: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file is not in its format, or is damaged.
    #[error("`{path}` is not in its format, or is damaged: {message}")]
    Format {
        /// The file.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// A tensor is missing.
    #[error("the model's files have no tensor `{0}`")]
    Missing(String),
    /// A tensor has another shape than the configuration says.
    #[error("the tensor `{name}` has the shape {found:?}; the configuration needs {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that it must have.
        expected: Vec<usize>,
    },
    /// The configuration makes no sense.
    #[error("the model's configuration can't be used: {0}")]
    Config(String),
    /// The architecture is not one that is known here.
    #[error("the model's architecture is `{found}`; known are `{known}`")]
    Architecture {
        /// The model's.
        found: String,
        /// The known ones.
        known: String,
    },
    /// The tokenizer is not one that is known here.
    #[error("the model's tokenizer can't be used: {0}")]
    Tokenizer(String),
    /// The chat template does not work.
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
    /// The prompt has no tokens.
    #[error("the prompt is empty")]
    Empty,
    /// A token id is not one of the model's.
    #[error("there is no token {token}; the vocabulary has {vocabulary}")]
    Token {
        /// The id.
        token: u32,
        /// How many there are.
        vocabulary: usize,
    },
    /// A setting of a request is out of its bounds.
    #[error("`{name}` is {value}; it must be {bounds}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        bounds: &'static str,
    },
    /// A constraint can't be used.
    #[error("the constraint can't be used: {0}")]
    Constraint(String),
    /// An adapter does not fit, or changes nothing.
    #[error("the adapter `{path}` can't be used: {message}")]
    Adapter {
        /// Its folder.
        path: String,
        /// Why.
        message: String,
    },
    /// No adapter of that name is loaded.
    #[error("no adapter `{0}` is loaded")]
    NoAdapter(String),
    /// No matrix has the name of a target of training.
    #[error("no matrix is named `{target}`; the model has `{known}`")]
    Target {
        /// The name.
        target: String,
        /// The names that there are.
        known: String,
    },
    /// A variable was not reached on the way back.
    #[error("`{name}` has no gradient: it takes no part in the result")]
    NoGradient {
        /// The variable.
        name: String,
    },
    /// The engine has as many requests waiting as it takes.
    #[error("{waiting} requests wait already; the limit is {limit}")]
    Busy {
        /// How many wait.
        waiting: usize,
        /// The most that may.
        limit: usize,
    },
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
    /// The computation failed.
    #[error("the model failed: {0}")]
    Compute(#[from] candle_core::Error),
    /// A fault of this crate.
    #[error("a fault in the engine: {0}")]
    Internal(&'static str),
}
