//! One batch on its way through the layers.

use std::{ops::Range, sync::Arc};

use candle_core::Tensor;

use super::memory::Memory;
use crate::{LmError, adapter::Adapter, kernels::attention::Segment, ops::product::Dropout};

/// The rows of one sequence in a batch.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// The tokens, neighbours in their sequence.
    pub(crate) tokens: Vec<u32>,
    /// The first one's position.
    pub(crate) start: usize,
    /// The sequence's pages; none without a memory.
    pub(crate) table: Vec<u32>,
    /// Where the sequence's recurrent state lies in the memory.
    pub(crate) slot: usize,
    /// Its adapter.
    pub(crate) adapter: Option<Arc<Adapter>>,
    /// Which of its rows' logits are wanted, counted from its first.
    pub(crate) wanted: Vec<usize>,
}

/// A batch: rows of several sequences, one after the other.
pub(crate) struct Pass<'a> {
    pub(crate) segments: Vec<Segment>,
    pub(crate) slots: Vec<usize>,
    pub(crate) adapters: Vec<Option<Arc<Adapter>>>,
    /// Each row's position.
    pub(crate) positions: Vec<usize>,
    /// What the sequences have left behind; none in training, where each begins in this batch.
    pub(crate) memory: Option<&'a mut Memory>,
    /// For each of the model's rotaries, what it turns these rows by.
    pub(crate) turns: Vec<Arc<Turns>>,
    /// What adapters do not see, in training; each matrix derives its own from it.
    pub(crate) dropout: Option<Dropout>,
}

/// Cosines and sines of each row's angles: `[rows, half]`.
pub(crate) struct Turns {
    pub(crate) cos: Vec<f32>,
    pub(crate) sin: Vec<f32>,
    pub(crate) half: usize,
    /// The same as tensors, where candle computes.
    pub(crate) tensors: Option<(Tensor, Tensor)>,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(spans: &[Span], memory: Option<&'a mut Memory>) -> Result<Self, LmError> {
        let mut pass = Self {
            segments: Vec::with_capacity(spans.len()),
            slots: spans.iter().map(|span| span.slot).collect(),
            adapters: spans.iter().map(|span| span.adapter.clone()).collect(),
            positions: Vec::new(),
            memory,
            turns: Vec::new(),
            dropout: None,
        };
        for span in spans {
            let first = pass.positions.len();
            pass.positions
                .extend(span.start..span.start + span.tokens.len());
            pass.segments.push(Segment {
                rows: first..pass.positions.len(),
                start: span.start,
                table: span.table.clone(),
            });
        }
        Ok(pass)
    }

    /// Neighbouring rows with the same adapter.
    pub(crate) fn adapted(&self) -> Vec<(Range<usize>, Arc<Adapter>)> {
        let mut runs: Vec<(Range<usize>, Arc<Adapter>)> = Vec::new();
        for (segment, adapter) in self.segments.iter().zip(&self.adapters) {
            let Some(adapter) = adapter else { continue };
            match runs.last_mut() {
                Some((rows, last))
                    if rows.end == segment.rows.start && Arc::ptr_eq(last, adapter) =>
                {
                    rows.end = segment.rows.end;
                }
                _ => runs.push((segment.rows.clone(), Arc::clone(adapter))),
            }
        }
        runs
    }
}
