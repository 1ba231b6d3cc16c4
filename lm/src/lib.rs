//! Small language models on candle, on the processor: one GGUF file is a model, with its tokenizer
//! and its chat template.
//!
//! Plain on purpose: one sequence at a time. Replies are a function of the request and its seed.

mod error;
mod model;
mod sampling;
mod template;
mod tokenizer;

pub use error::LmError;
pub use model::{Generated, Model, StopReason};
pub use sampling::Sampling;
pub use template::ChatMessage;
