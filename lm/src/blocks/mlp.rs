//! The gated feed-forward network.
//!
//! Source: Shazeer: GLU Variants Improve Transformer (2020).

use candle_core::{D, Tensor};

use super::{Backend, Linear, Loader, Pass, view};
use crate::{
    LmError,
    kernels::rows::{self, Activation},
    ops,
};

/// `down(activation(gate(x)) * up(x))`
pub(crate) struct Mlp {
    pub(crate) input: Linear,
    pub(crate) output: Linear,
    inner: usize,
    activation: Activation,
    kernels: bool,
}

impl Mlp {
    pub(crate) fn load(
        loader: &Loader<'_>,
        prefix: &str,
        width: usize,
        inner: usize,
        activation: Activation,
    ) -> Result<Self, LmError> {
        let name = |part: &str| format!("{prefix}.{part}");
        Ok(Self {
            input: loader.linear(
                width,
                &[(name("gate_proj"), inner), (name("up_proj"), inner)],
            )?,
            output: loader.linear(inner, &[(name("down_proj"), width)])?,
            inner,
            activation,
            kernels: matches!(loader.backend, Backend::Kernels { .. }),
        })
    }

    pub(crate) fn forward(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor, LmError> {
        let both = self.input.forward(x, pass)?;
        let mixed = if self.kernels {
            let mixed = view::with(&both, |x| rows::gated(x, self.inner, self.activation))?;
            view::rows(mixed, self.inner)?
        } else if ops::take(&both) {
            ops::gated::gated(&both, self.inner, self.activation)?
        } else {
            let gate = both.narrow(D::Minus1, 0, self.inner)?.contiguous()?;
            let up = both
                .narrow(D::Minus1, self.inner, self.inner)?
                .contiguous()?;
            let gate = match self.activation {
                Activation::Silu => gate.silu()?,
                Activation::GeluTanh => gate.gelu()?,
            };
            (gate * up)?
        };
        self.output.forward(&mixed, pass)
    }
}
