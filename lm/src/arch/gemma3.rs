//! Gemma 3, text: layers with a window and layers without take turns, and every step is normed
//! before and after.
//!
//! Source: Gemma Team: Gemma 3 Technical Report (2025).

use serde::Deserialize;

use super::{Shape, assemble, parse};
use crate::{
    LmError,
    blocks::{Attention, AttentionForm, Decoder, Layer, Loader, Mixer, Mlp},
    kernels::rows::Activation,
};

/// What only this architecture has.
#[derive(Deserialize)]
struct Extra {
    sliding_window: usize,
    #[serde(rename = "_sliding_window_pattern")]
    sliding_window_pattern: Option<usize>,
    layer_types: Option<Vec<String>>,
    query_pre_attn_scalar: Option<f64>,
    rope_local_base_freq: Option<f64>,
}

impl Extra {
    fn is_local(&self, layer: usize) -> bool {
        match &self.layer_types {
            Some(types) => types
                .get(layer)
                .is_some_and(|kind| kind == "sliding_attention"),
            None => !(layer + 1).is_multiple_of(self.sliding_window_pattern.unwrap_or(6).max(1)),
        }
    }
}

/// Rotaries: of layers without and with a window.
const GLOBAL: usize = 0;
const LOCAL: usize = 1;

pub(super) fn load(shape: &Shape, loader: &Loader<'_>) -> Result<Decoder, LmError> {
    let extra: Extra = parse(loader.checkpoint.config())?;
    let (width, epsilon, dim) = (shape.hidden_size, shape.rms_norm_eps, shape.head_dim());
    let scale = extra.query_pre_attn_scalar.unwrap_or(dim as f64).powf(-0.5) as f32;
    let norm = |name: &str, width: usize| loader.norm(name, width, epsilon, true);
    let layer = |index: usize| {
        let name = |part: &str| format!("model.layers.{index}.{part}");
        let local = extra.is_local(index);
        let form = AttentionForm {
            heads: shape.num_attention_heads,
            key_heads: shape.key_heads(),
            dim,
            scale,
            window: local.then_some(extra.sliding_window),
            rotary: if local { LOCAL } else { GLOBAL },
            gated: false,
        };
        let norms = (
            norm(&name("self_attn.q_norm"), dim)?,
            norm(&name("self_attn.k_norm"), dim)?,
        );
        let inner = shape.intermediate_size;
        Ok(Layer {
            before_mixer: norm(&name("input_layernorm"), width)?,
            mixer: Mixer::Attention(Attention::load(
                loader,
                &name("self_attn"),
                width,
                form,
                Some(norms),
            )?),
            after_mixer: Some(norm(&name("post_attention_layernorm"), width)?),
            before_mlp: norm(&name("pre_feedforward_layernorm"), width)?,
            mlp: Mlp::load(loader, &name("mlp"), width, inner, Activation::GeluTanh)?,
            after_mlp: Some(norm(&name("post_feedforward_layernorm"), width)?),
        })
    };
    let layers = (0..shape.num_hidden_layers)
        .map(layer)
        .collect::<Result<_, LmError>>()?;
    let global = shape.rotary(loader.checkpoint, Some("full_attention"), dim, 1_000_000.0)?;
    let theta = extra.rope_local_base_freq.unwrap_or(10_000.0);
    let local = shape.own_rotary("sliding_attention", dim, theta);
    let mut decoder = assemble(shape, loader, layers, vec![global, local], true)?;
    decoder.embedding_scale = (width as f64).sqrt();
    Ok(decoder)
}
