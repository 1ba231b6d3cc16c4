//! What the episode may still spend on model and tool calls.

use crate::bindings::whale::harness::model;

pub use model::Budget;

/// What is left now.
#[must_use]
pub fn remaining() -> Budget {
    model::remaining()
}

/// Whether `calls` more model calls of up to `tokens` new tokens each are within what is left.
#[must_use]
pub fn affords(calls: u64, tokens: u64) -> bool {
    let left = remaining();
    left.model_calls >= calls && left.completion_tokens >= calls.saturating_mul(tokens)
}
