//! Qwen3, dense: Llama with a norm on each head's query and key.
//!
//! Source: Yang et al.: Qwen3 Technical Report (2025).

use super::{Shape, llama};
use crate::{
    LmError,
    blocks::{Decoder, Loader},
};

pub(super) fn load(shape: &Shape, loader: &Loader<'_>) -> Result<Decoder, LmError> {
    let (dim, epsilon) = (shape.head_dim(), shape.rms_norm_eps);
    llama::load_with(shape, loader, 1_000_000.0, |attention| {
        let norm = |part: &str| loader.norm(&format!("{attention}.{part}"), dim, epsilon, false);
        Ok(Some((norm("q_norm")?, norm("k_norm")?)))
    })
}
