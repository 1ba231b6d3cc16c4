//! Root mean square norm.
//!
//! Source: Zhang, Sennrich: Root Mean Square Layer Normalization (2019).

use candle_core::{D, DType, Tensor};

use super::{Backend, view};
use crate::{LmError, kernels::rows, ops};

/// A norm over the last dimension.
pub(crate) struct Norm {
    pub(crate) name: String,
    pub(crate) epsilon: f32,
    /// Files of safetensors hold its weights less one.
    pub(crate) less_one: bool,
    weight: Weight,
}

enum Weight {
    Numbers(Vec<f32>),
    Tensor(Tensor),
}

impl Norm {
    pub(crate) fn new(
        name: &str,
        weight: Vec<f32>,
        epsilon: f64,
        less_one: bool,
        backend: &Backend,
    ) -> Result<Self, LmError> {
        let weight = match backend {
            Backend::Kernels { .. } => Weight::Numbers(weight),
            Backend::Candle { device, .. } => {
                Weight::Tensor(Tensor::from_vec(weight.clone(), weight.len(), device)?)
            }
        };
        Ok(Self {
            name: name.to_owned(),
            epsilon: epsilon as f32,
            less_one,
            weight,
        })
    }

    /// The weights, where the kernels run.
    pub(crate) fn numbers(&self) -> Option<&[f32]> {
        match &self.weight {
            Weight::Numbers(numbers) => Some(numbers),
            Weight::Tensor(_) => None,
        }
    }

    /// The weights, where candle computes.
    pub(crate) fn tensor(&self) -> Option<&Tensor> {
        match &self.weight {
            Weight::Numbers(_) => None,
            Weight::Tensor(weight) => Some(weight),
        }
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor, LmError> {
        match &self.weight {
            Weight::Numbers(weight) => {
                let normed = view::with(x, |x| rows::rms_norm(x, weight, self.epsilon))?;
                view::rows(normed, weight.len())
            }
            Weight::Tensor(weight) if ops::take(x) => Ok(ops::norm::norm(x, weight, self.epsilon)?),
            Weight::Tensor(weight) => {
                let wide = x.to_dtype(DType::F32)?;
                let square = (wide.sqr()?.mean_keepdim(D::Minus1)? + f64::from(self.epsilon))?;
                let scaled = wide.broadcast_div(&square.sqrt()?)?;
                Ok(scaled
                    .broadcast_mul(&weight.to_dtype(DType::F32)?)?
                    .to_dtype(x.dtype())?)
            }
        }
    }

    /// The name of its weights in files.
    pub(crate) fn weight_name(&self) -> String {
        format!("{}.weight", self.name)
    }

    /// Every tensor that can be trained, by name.
    pub(crate) fn trainable(&mut self, visit: &mut dyn FnMut(&str, &mut Tensor)) {
        let name = self.weight_name();
        if let Weight::Tensor(weight) = &mut self.weight {
            visit(&name, weight);
        }
    }
}
