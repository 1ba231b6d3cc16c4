//! Causal attention with grouped keys, over a memory or within the batch.
//!
//! Sources: Vaswani et al. (2017); grouped queries: Ainslie et al. (2023); a paged memory: Kwon et
//! al. (2023).

use std::sync::Arc;

use candle_core::{D, DType, Device, Tensor};

use super::{Backend, Linear, Loader, Needs, Norm, Pass, memory::Kept, pass::Turns, view};
use crate::{
    LmError,
    kernels::{
        self,
        attention::{Form, PAGE, Segment},
        rows::rms_norm_in_place,
    },
    ops,
};

/// One attention.
pub(crate) struct Attention {
    pub(crate) input: Linear,
    pub(crate) output: Linear,
    pub(crate) norms: Option<(Norm, Norm)>,
    form: AttentionForm,
    kernels: bool,
}

/// Its form.
#[derive(Clone, Debug)]
pub(crate) struct AttentionForm {
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) dim: usize,
    pub(crate) scale: f32,
    pub(crate) window: Option<usize>,
    /// Which of the model's rotaries turns it.
    pub(crate) rotary: usize,
    /// Each query brings a gate for its head's result.
    pub(crate) gated: bool,
}

impl Attention {
    /// Loads `{prefix}.{q,k,v,o}_proj`.
    pub(crate) fn load(
        loader: &Loader<'_>,
        prefix: &str,
        width: usize,
        form: AttentionForm,
        norms: Option<(Norm, Norm)>,
    ) -> Result<Self, LmError> {
        let name = |part: &str| format!("{prefix}.{part}");
        let queries = form.heads * form.dim;
        let keys = form.key_heads * form.dim;
        let parts = [
            (
                name("q_proj"),
                if form.gated { 2 * queries } else { queries },
            ),
            (name("k_proj"), keys),
            (name("v_proj"), keys),
        ];
        Ok(Self {
            input: loader.linear_with_bias(width, &parts)?,
            output: loader.linear_with_bias(queries, &[(name("o_proj"), width)])?,
            norms,
            form,
            kernels: matches!(loader.backend, Backend::Kernels { .. }),
        })
    }

    pub(crate) fn needs(&self) -> Needs {
        Needs::Pages {
            heads: self.form.key_heads,
            dim: self.form.dim,
        }
    }

    /// `[rows, width]` to the same.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        layer: usize,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor, LmError> {
        let all = self.input.forward(x, pass)?;
        let mixed = if self.kernels {
            let mixed = view::with(&all, |all| self.by_kernels(all, layer, pass))??;
            view::rows(mixed, self.form.heads * self.form.dim)?
        } else if pass.memory.is_none() && !self.form.gated && ops::take(&all) {
            self.with_gradient(&all, pass)?
        } else {
            self.by_candle(&all, layer, pass)?
        };
        self.output.forward(&mixed, pass)
    }

    /// As one operation, within the batch.
    fn with_gradient(&self, all: &Tensor, pass: &Pass<'_>) -> Result<Tensor, LmError> {
        let attend = ops::attention::Attend {
            form: self.kernel_form(),
            key_heads: self.form.key_heads,
            dim: self.form.dim,
            turns: Arc::clone(&pass.turns[self.form.rotary]),
            sequences: pass
                .segments
                .iter()
                .map(|segment| segment.rows.clone())
                .collect(),
        };
        let norms = self.norms.as_ref();
        let norms = norms.and_then(|(queries, keys)| {
            Some((
                (queries.tensor()?, queries.epsilon),
                (keys.tensor()?, keys.epsilon),
            ))
        });
        Ok(match norms {
            None => ops::attention::attend(all, attend)?,
            Some((queries, keys)) => ops::attention::attend_normed(all, attend, [queries, keys])?,
        })
    }

    fn kernel_form(&self) -> Form {
        Form {
            heads: self.form.heads,
            scale: self.form.scale,
            window: self.form.window,
        }
    }

    fn by_kernels(
        &self,
        all: &[f32],
        layer: usize,
        pass: &mut Pass<'_>,
    ) -> Result<Vec<f32>, LmError> {
        let AttentionForm {
            heads,
            key_heads,
            dim,
            gated,
            ..
        } = self.form;
        let stride = if gated { 2 * dim } else { dim };
        let (queries_end, keys) = (heads * stride, key_heads * dim);
        let width = queries_end + 2 * keys;
        let rows = all.len() / width;
        let turns = &pass.turns[self.form.rotary];
        let norms = self.norms.as_ref();

        // Queries and keys side by side, normed and turned.
        let turned = (heads + key_heads) * dim;
        let mut ready = vec![0.0; rows * turned];
        kernels::for_rows(&mut ready, turned, turned * 8, |first, ready| {
            for (index, ready) in ready.chunks_exact_mut(turned).enumerate() {
                let row = first + index;
                let all = &all[row * width..(row + 1) * width];
                let queries = all[..queries_end]
                    .chunks_exact(stride)
                    .map(|head| &head[..dim]);
                let keys = all[queries_end..queries_end + keys].chunks_exact(dim);
                for (place, head) in ready.chunks_exact_mut(dim).zip(queries.chain(keys)) {
                    place.copy_from_slice(head);
                }
                for (head, place) in ready.chunks_exact_mut(dim).enumerate() {
                    if let Some((of_queries, of_keys)) = norms {
                        let norm = if head < heads { of_queries } else { of_keys };
                        if let Some(weight) = norm.numbers() {
                            rms_norm_in_place(place, weight, norm.epsilon);
                        }
                    }
                    turns.turn(row, place);
                }
            }
        });
        let memory = pass
            .memory
            .as_deref_mut()
            .ok_or(LmError::Internal("no memory"))?;
        let Kept::Pages(pages) = &mut memory.layers[layer] else {
            return Err(LmError::Internal("the layer's memory has no pages"));
        };
        let mut queries = Vec::with_capacity(rows * heads * dim);
        for segment in &pass.segments {
            for (offset, row) in segment.rows.clone().enumerate() {
                let (query, key) = ready[row * turned..(row + 1) * turned].split_at(heads * dim);
                let value = &all[row * width + queries_end + keys..(row + 1) * width];
                pages.write(&segment.table, segment.start + offset, key, value);
                queries.extend_from_slice(query);
            }
        }
        let mut mixed =
            kernels::attention::attend(&queries, &pass.segments, pages, self.kernel_form());
        if gated {
            for (row, mixed) in mixed.chunks_exact_mut(heads * dim).enumerate() {
                let queries = all[row * width..][..queries_end].chunks_exact(stride);
                for (mixed, query) in mixed.chunks_exact_mut(dim).zip(queries) {
                    for (x, gate) in mixed.iter_mut().zip(&query[dim..]) {
                        *x /= 1.0 + (-gate).exp();
                    }
                }
            }
        }
        Ok(mixed)
    }

    fn by_candle(
        &self,
        all: &Tensor,
        layer: usize,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor, LmError> {
        let AttentionForm {
            heads,
            key_heads,
            dim,
            gated,
            ..
        } = self.form;
        let rows = all.dim(0)?;
        let stride = if gated { 2 * dim } else { dim };
        let keys_at = heads * stride;
        let queries = all.narrow(1, 0, keys_at)?.reshape((rows, heads, stride))?;
        let gate = if gated {
            Some(queries.narrow(2, dim, dim)?)
        } else {
            None
        };
        let queries = queries.narrow(2, 0, dim)?.contiguous()?;
        let part = |at: usize| {
            all.narrow(1, at, key_heads * dim)?
                .contiguous()?
                .reshape((rows, key_heads, dim))
        };
        let (keys, values) = (part(keys_at)?, part(keys_at + key_heads * dim)?);
        let turns = &pass.turns[self.form.rotary];
        let ready = |x: &Tensor, norm: Option<&Norm>, turns: &Turns| {
            turns.turn_tensor(&norm.map_or_else(|| Ok(x.clone()), |norm| norm.forward(x))?)
        };
        let norms = self.norms.as_ref();
        let queries = ready(&queries, norms.map(|(norm, _)| norm), turns)?;
        let keys = ready(&keys, norms.map(|(_, norm)| norm), turns)?;

        let mut outs = Vec::with_capacity(pass.segments.len());
        for segment in &pass.segments {
            let own = |x: &Tensor| x.narrow(0, segment.rows.start, segment.rows.len());
            let (keys, values) = match pass.memory.as_deref_mut() {
                None => (own(&keys)?, own(&values)?),
                Some(memory) => {
                    let Kept::Tensors {
                        keys: old_keys,
                        values: old_values,
                    } = &memory.layers[layer]
                    else {
                        return Err(LmError::Internal("the layer's memory has no tensors"));
                    };
                    let remember = |new: &Tensor, old: &Tensor| {
                        remembered(&own(new)?, old, segment)?
                            .reshape(((), key_heads, dim))
                            .map_err(LmError::from)
                    };
                    (remember(&keys, old_keys)?, remember(&values, old_values)?)
                }
            };
            outs.push(self.attend(&own(&queries)?, &keys, &values, segment.start)?);
        }
        let mixed = if let [out] = outs.as_slice() {
            out.clone()
        } else {
            Tensor::cat(&outs, 0)?
        };
        let mixed = match gate {
            Some(gate) => (mixed * sigmoid(&gate)?)?,
            None => mixed,
        };
        Ok(mixed.reshape((rows, heads * dim))?)
    }

    /// Queries `[rows, heads, dim]` from position `start` on, against keys and values
    /// `[positions, key heads, dim]` from position 0 on.
    fn attend(
        &self,
        queries: &Tensor,
        keys: &Tensor,
        values: &Tensor,
        start: usize,
    ) -> Result<Tensor, LmError> {
        let AttentionForm {
            heads,
            key_heads,
            dim,
            ..
        } = self.form;
        let (rows, positions) = (queries.dim(0)?, keys.dim(0)?);
        let group = heads / key_heads;
        let queries =
            queries
                .transpose(0, 1)?
                .contiguous()?
                .reshape((key_heads, group * rows, dim))?;
        let keys = keys.transpose(0, 1)?.contiguous()?;
        let values = values.transpose(0, 1)?.contiguous()?;
        let scores = (queries.matmul(&keys.t()?)? * f64::from(self.form.scale))?;
        let scores = scores
            .reshape((heads, rows, positions))?
            .to_dtype(DType::F32)?;
        let mask = self.mask(start, rows, positions, queries.device())?;
        let weights = candle_nn::ops::softmax(&scores.broadcast_add(&mask)?, D::Minus1)?;
        let weights = weights.to_dtype(values.dtype())?;
        let weights = weights.reshape((key_heads, group * rows, positions))?;
        let mixed = weights.matmul(&values)?.reshape((heads, rows, dim))?;
        Ok(mixed.transpose(0, 1)?.contiguous()?)
    }

    /// Added to the scores: nothing for what a query sees, minus infinity for the rest.
    fn mask(
        &self,
        start: usize,
        rows: usize,
        positions: usize,
        device: &Device,
    ) -> Result<Tensor, LmError> {
        let form = self.kernel_form();
        let mut mask = vec![f32::NEG_INFINITY; rows * positions];
        for (row, mask) in mask.chunks_exact_mut(positions).enumerate() {
            mask[form.seen(start + row)].fill(0.0);
        }
        Ok(Tensor::from_vec(mask, (rows, positions), device)?)
    }
}

/// Writes a segment's rows into the memory and gives back all of its sequence so far.
fn remembered(new: &Tensor, old: &Tensor, segment: &Segment) -> Result<Tensor, LmError> {
    let rows = new.dim(0)?;
    let width = old.dim(1)?;
    let device = new.device();
    let place = |position: usize| {
        let at = segment.table[position / PAGE] as usize * PAGE + position % PAGE;
        u32::try_from(at).unwrap_or(u32::MAX)
    };
    let end = segment.start + rows;
    let places: Vec<u32> = (segment.start..end).map(place).collect();
    let places = Tensor::new(places, device)?.reshape((rows, 1))?;
    let places = places.broadcast_as((rows, width))?.contiguous()?;
    old.scatter_set(&places, &new.reshape((rows, width))?.contiguous()?, 0)?;
    let all: Vec<u32> = (0..end).map(place).collect();
    Ok(old.index_select(&Tensor::new(all, device)?, 0)?)
}

/// The logistic function, with a gradient that is finite everywhere.
pub(super) fn sigmoid(x: &Tensor) -> Result<Tensor, LmError> {
    Ok((((x * 0.5)?.tanh()? + 1.0)? * 0.5)?)
}
