//! Llama.
//!
//! Source: Touvron et al.: Llama 2 (2023); SmolLM2 has the same architecture.

use super::{Shape, assemble};
use crate::{
    LmError,
    blocks::{Attention, AttentionForm, Decoder, Layer, Loader, Mixer, Mlp, Norm},
    kernels::rows::Activation,
};

pub(super) fn load(shape: &Shape, loader: &Loader<'_>) -> Result<Decoder, LmError> {
    load_with(shape, loader, 10_000.0, |_| Ok(None))
}

/// The same with norms of queries and keys, which later architectures have.
pub(super) fn load_with(
    shape: &Shape,
    loader: &Loader<'_>,
    theta: f64,
    norms: impl Fn(&str) -> Result<Option<(Norm, Norm)>, LmError>,
) -> Result<Decoder, LmError> {
    let (width, epsilon) = (shape.hidden_size, shape.rms_norm_eps);
    let form = AttentionForm {
        heads: shape.num_attention_heads,
        key_heads: shape.key_heads(),
        dim: shape.head_dim(),
        scale: (shape.head_dim() as f32).powf(-0.5),
        window: None,
        rotary: 0,
        gated: false,
    };
    let layer = |index: usize| {
        let name = |part: &str| format!("model.layers.{index}.{part}");
        let attention = name("self_attn");
        let norms = norms(&attention)?;
        let attention = Attention::load(loader, &attention, width, form.clone(), norms)?;
        let inner = shape.intermediate_size;
        Ok(Layer {
            before_mixer: loader.norm(&name("input_layernorm"), width, epsilon, false)?,
            mixer: Mixer::Attention(attention),
            after_mixer: None,
            before_mlp: loader.norm(&name("post_attention_layernorm"), width, epsilon, false)?,
            mlp: Mlp::load(loader, &name("mlp"), width, inner, Activation::Silu)?,
            after_mlp: None,
        })
    };
    let layers = (0..shape.num_hidden_layers)
        .map(layer)
        .collect::<Result<_, LmError>>()?;
    let rotary = shape.rotary(loader.checkpoint, None, shape.head_dim(), theta)?;
    assemble(shape, loader, layers, vec![rotary], false)
}
