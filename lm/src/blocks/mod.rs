//! The parts that architectures are made of.
//!
//! Each part computes in one of two ways, which give the same numbers up to rounding. With packed
//! weights it runs the kernels of this crate, on the processor, without gradients. With tensors it
//! runs candle's operations, on any device, and only those that have gradients.

mod attention;
mod decoder;
mod delta_net;
mod embedding;
mod linear;
mod memory;
mod mlp;
mod norm;
mod pass;
mod rotary;
mod view;

pub(crate) use self::{
    attention::{Attention, AttentionForm},
    decoder::{Decoder, Layer, Mixer},
    delta_net::{DeltaForm, DeltaNet},
    embedding::{Embedding, Table},
    linear::{Linear, Part},
    memory::{Memory, Needs},
    mlp::Mlp,
    norm::Norm,
    pass::{Pass, Span, Turns},
    rotary::{Rotary, Scaling},
};
use crate::{LmError, weights::Checkpoint};
use candle_core::{DType, Device};

/// How a model is loaded.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    /// Packed weights and the kernels of this crate.
    Kernels {
        /// Weights are widened to 32 bits first, so that rows are not rounded to 8.
        widen: bool,
    },
    /// Tensors and candle's operations.
    Candle {
        /// Where.
        device: Device,
        /// In which precision.
        dtype: DType,
        /// Weights are not trained, only what is beside them: where the kernels can, they are packed.
        frozen: bool,
    },
}

impl Backend {
    /// Weights are packed for both directions.
    fn packs_frozen(&self) -> bool {
        matches!(
            self,
            Self::Candle {
                device: Device::Cpu,
                dtype: DType::F32,
                frozen: true
            }
        )
    }
}

/// What parts are loaded from.
pub(crate) struct Loader<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) backend: Backend,
}

impl Loader<'_> {
    pub(crate) fn norm(
        &self,
        name: &str,
        width: usize,
        epsilon: f64,
        less_one: bool,
    ) -> Result<Norm, LmError> {
        let weight = self
            .checkpoint
            .norm(&format!("{name}.weight"), width, less_one)?;
        Norm::new(name, weight, epsilon, less_one, &self.backend)
    }

    /// Matrices that read the same rows; `(name, outputs)` each.
    pub(crate) fn linear(
        &self,
        inputs: usize,
        parts: &[(String, usize)],
    ) -> Result<Linear, LmError> {
        Linear::load(self, inputs, parts)
    }

    /// The same with biases where the file has them.
    pub(crate) fn linear_with_bias(
        &self,
        inputs: usize,
        parts: &[(String, usize)],
    ) -> Result<Linear, LmError> {
        Linear::load(self, inputs, parts)?.with_bias(self)
    }
}
