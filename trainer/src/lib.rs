//! Rejection-sampling fine-tuning on a model's own tokens.
//!
//! What a model wrote in episodes comes in as [`Trajectory`]s: token ids in their exact contexts,
//! and a reward. [`data`] makes sequences of them, [`select`] keeps what a verifier accepted, a
//! [`Trainer`] takes the steps, [`checkpoint`] keeps its state. Nothing is ever tokenised from text.
//!
//! Source of the method: Kim et al.: WHALE (2026), its weight phase.

pub mod checkpoint;
pub mod data;
mod error;
pub mod export;
pub mod external;
mod files;
pub mod metrics;
pub mod optimizer;
mod patience;
mod queue;
pub mod select;
mod settings;
#[cfg(test)]
mod tests;
mod trainer;
mod trajectory;

pub use error::TrainError;
pub use files::write_whole;
pub use patience::{Patience, PatienceSettings};
pub use queue::Queue;
pub use settings::{Backend, Method, Precision, Recompute, Settings};
pub use trainer::{Parity, Saved, Trainer, Update};
pub use trajectory::{FORMAT, Header, ModelCall, Trajectories, Trajectory};
