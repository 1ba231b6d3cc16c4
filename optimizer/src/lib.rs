//! Evaluates harnesses and adapters on tasks, compares them, and trains the weights.

pub mod evaluate;
pub mod weights;
