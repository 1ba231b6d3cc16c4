//! A language-model engine on candle: batched generation, scoring, adapters, and logits for
//! training from the same weights.
//!
//! - [`Model`] is a loaded checkpoint: GGUF or safetensors, of one of the known [`Architecture`]s.
//! - [`Engine`] serves many [`Request`]s at once from one batch.
//! - [`Learner`] gives log-probabilities with gradients.
//! - [`Adapter`] is a LoRA, applied beside the weights.

mod adapter;
mod arch;
mod blocks;
pub mod ceiling;
mod engine;
mod error;
mod kernels;
mod learn;
mod merge;
mod model;
mod ops;
mod random;
mod simd;
mod text;
mod weights;

pub use adapter::Adapter;
pub use arch::Architecture;
pub use engine::{
    Constraint, Engine, EngineConfig, Event, FinishReason, Generate, Generated, Request,
    SampledToken, Sampling, Scored, Sink, Stats, Ticket, Work,
};
pub use error::LmError;
pub use learn::{Gradients, Learner, Lora, Pass, Supervised, Trained};
pub use merge::{Trainable, merge};
pub use model::{Compute, Description, Model};
pub use text::{ChatMessage, Tool, ToolCall, parse_tool_calls};
