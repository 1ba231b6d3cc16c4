//! What sequences leave behind in each layer for their next tokens.

use candle_core::{DType, Device, Tensor};

use super::Backend;
use crate::{
    LmError,
    kernels::attention::{PAGE, Pages},
};

/// What a layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Keys and values of every position.
    Pages { heads: usize, dim: usize },
    /// One state, whatever the length.
    State,
}

/// The memory of all layers.
pub(crate) struct Memory {
    pub(super) layers: Vec<Kept>,
}

pub(super) enum Kept {
    Pages(Pages),
    /// `[pages * PAGE, heads * dim]`, where candle computes.
    Tensors {
        keys: Tensor,
        values: Tensor,
    },
    /// For each slot; none where nothing was read yet.
    States(Vec<Option<State>>),
}

/// The recurrent state of one sequence in one layer.
#[derive(Clone)]
pub(super) enum State {
    Numbers {
        /// The convolution's last inputs: `[kernel - 1, channels]`.
        inputs: Vec<f32>,
        /// `[heads, key width, value width]`
        state: Vec<f32>,
    },
    Tensors {
        inputs: Tensor,
        state: Tensor,
    },
}

impl Memory {
    /// Room for so many pages, and for the states of so many sequences.
    pub(crate) fn new(
        needs: &[Needs],
        pages: usize,
        slots: usize,
        backend: &Backend,
    ) -> Result<Self, LmError> {
        let layer = |needs: &Needs| {
            Ok(match (*needs, backend) {
                (Needs::State, _) => Kept::States(vec![None; slots]),
                (Needs::Pages { heads, dim }, Backend::Kernels { .. }) => {
                    Kept::Pages(Pages::new(pages, heads, dim))
                }
                (Needs::Pages { heads, dim }, Backend::Candle { device, dtype, .. }) => {
                    let zeros = || zeros(pages * PAGE, heads * dim, *dtype, device);
                    Kept::Tensors {
                        keys: zeros()?,
                        values: zeros()?,
                    }
                }
            })
        };
        Ok(Self {
            layers: needs.iter().map(layer).collect::<Result<_, LmError>>()?,
        })
    }

    /// The bytes of a page over all layers.
    pub(crate) fn page_bytes(needs: &[Needs], backend: &Backend) -> usize {
        let each = match backend {
            Backend::Kernels { .. } => 4,
            Backend::Candle { dtype, .. } => dtype.size_in_bytes(),
        };
        let of_layer = |needs: &Needs| match needs {
            Needs::Pages { heads, dim } => 2 * heads * dim * PAGE * each,
            Needs::State => 0,
        };
        needs.iter().map(of_layer).sum()
    }

    /// Makes one slot's state that of another.
    pub(crate) fn copy_state(&mut self, from: usize, to: usize) {
        for layer in &mut self.layers {
            if let Kept::States(states) = layer {
                states[to] = states[from].clone();
            }
        }
    }

    /// Forgets a slot's state.
    pub(crate) fn clear_state(&mut self, slot: usize) {
        for layer in &mut self.layers {
            if let Kept::States(states) = layer {
                states[slot] = None;
            }
        }
    }
}

fn zeros(rows: usize, width: usize, dtype: DType, device: &Device) -> Result<Tensor, LmError> {
    Ok(Tensor::zeros((rows, width), dtype, device)?)
}
