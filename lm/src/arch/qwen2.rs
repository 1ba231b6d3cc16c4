//! Qwen2 and Qwen2.5: Llama with biases on queries, keys and values, which are found in the file.
//!
//! Source: Yang et al.: Qwen2 Technical Report (2024).

use super::{Shape, llama};
use crate::{
    LmError,
    blocks::{Decoder, Loader},
};

pub(super) fn load(shape: &Shape, loader: &Loader<'_>) -> Result<Decoder, LmError> {
    llama::load_with(shape, loader, 1_000_000.0, |_| Ok(None))
}
