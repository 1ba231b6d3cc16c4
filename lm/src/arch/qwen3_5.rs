//! Qwen3.5, dense, text: three gated delta nets for every full attention, whose results are gated.
//!
//! Source: the `qwen3_5` model of Hugging Face's transformers.

use serde::Deserialize;

use super::{Shape, assemble, parse};
use crate::{
    LmError,
    blocks::{Attention, AttentionForm, Decoder, DeltaForm, DeltaNet, Layer, Loader, Mixer, Mlp},
    kernels::rows::Activation,
};

/// What only this architecture has.
#[derive(Deserialize)]
struct Extra {
    layer_types: Option<Vec<String>>,
    full_attention_interval: Option<usize>,
    partial_rotary_factor: Option<f64>,
    rope_parameters: Option<RopeParameters>,
    linear_conv_kernel_dim: usize,
    linear_key_head_dim: usize,
    linear_value_head_dim: usize,
    linear_num_key_heads: usize,
    linear_num_value_heads: usize,
    #[serde(default)]
    value_heads_dealt: bool,
}

#[derive(Deserialize)]
struct RopeParameters {
    partial_rotary_factor: Option<f64>,
}

impl Extra {
    fn is_full(&self, layer: usize) -> bool {
        match &self.layer_types {
            Some(types) => types
                .get(layer)
                .is_some_and(|kind| kind == "full_attention"),
            None => (layer + 1).is_multiple_of(self.full_attention_interval.unwrap_or(4).max(1)),
        }
    }

    fn delta(&self) -> Result<DeltaForm, LmError> {
        let form = DeltaForm {
            key_heads: self.linear_num_key_heads,
            value_heads: self.linear_num_value_heads,
            key_dim: self.linear_key_head_dim,
            value_dim: self.linear_value_head_dim,
            kernel: self.linear_conv_kernel_dim,
            dealt: self.value_heads_dealt,
        };
        let each = [
            form.key_heads,
            form.value_heads,
            form.key_dim,
            form.value_dim,
            form.kernel,
        ];
        if each.iter().any(|n| !(1..=1024).contains(n)) {
            return Err(LmError::Config(format!(
                "the sizes of the linear attention are {each:?}; each must be 1 to 1024"
            )));
        }
        if !form.value_heads.is_multiple_of(form.key_heads) {
            return Err(LmError::Config(format!(
                "{} value heads can't share {} key heads",
                form.value_heads, form.key_heads
            )));
        }
        Ok(form)
    }
}

pub(super) fn load(shape: &Shape, loader: &Loader<'_>) -> Result<Decoder, LmError> {
    let extra: Extra = parse(loader.checkpoint.config())?;
    let (width, epsilon, dim) = (shape.hidden_size, shape.rms_norm_eps, shape.head_dim());
    let delta = extra.delta()?;
    let form = AttentionForm {
        heads: shape.num_attention_heads,
        key_heads: shape.key_heads(),
        dim,
        scale: (dim as f32).powf(-0.5),
        window: None,
        rotary: 0,
        gated: true,
    };
    let norm = |name: &str, width: usize| loader.norm(name, width, epsilon, true);
    let layer = |index: usize| {
        let name = |part: &str| format!("model.layers.{index}.{part}");
        let mixer = if extra.is_full(index) {
            let norms = (
                norm(&name("self_attn.q_norm"), dim)?,
                norm(&name("self_attn.k_norm"), dim)?,
            );
            let attention = name("self_attn");
            Mixer::Attention(Attention::load(
                loader,
                &attention,
                width,
                form.clone(),
                Some(norms),
            )?)
        } else {
            let prefix = name("linear_attn");
            Mixer::DeltaNet(DeltaNet::load(
                loader,
                &prefix,
                width,
                epsilon,
                delta.clone(),
            )?)
        };
        let inner = shape.intermediate_size;
        Ok(Layer {
            before_mixer: norm(&name("input_layernorm"), width)?,
            mixer,
            after_mixer: None,
            before_mlp: norm(&name("post_attention_layernorm"), width)?,
            mlp: Mlp::load(loader, &name("mlp"), width, inner, Activation::Silu)?,
            after_mlp: None,
        })
    };
    let layers = (0..shape.num_hidden_layers)
        .map(layer)
        .collect::<Result<_, LmError>>()?;
    let nested = extra
        .rope_parameters
        .and_then(|rope| rope.partial_rotary_factor);
    let share = extra.partial_rotary_factor.or(nested).unwrap_or(0.25);
    let turned = ((dim as f64 * share) as usize).clamp(2, dim) / 2 * 2;
    let rotary = shape.rotary(loader.checkpoint, None, turned, 10_000.0)?;
    assemble(shape, loader, layers, vec![rotary], true)
}
