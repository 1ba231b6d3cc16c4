//! Gated delta net: attention with a state of fixed size.
//!
//! Source: Yang, Kautz, Hatamizadeh: Gated Delta Networks (2024), in the form of Qwen3.5.

use candle_core::{D, DType, Tensor};

use super::{
    Backend, Linear, Loader, Needs, Norm, Pass,
    attention::sigmoid,
    memory::{Kept, State},
    view,
};
use crate::{LmError, kernels};

/// One gated delta net.
pub(crate) struct DeltaNet {
    pub(crate) input: Linear,
    pub(crate) output: Linear,
    pub(crate) norm: Norm,
    form: DeltaForm,
    /// `[channels, kernel]`
    convolution: Vec<f32>,
    /// Minus the rate at which each head forgets.
    decay: Vec<f32>,
    bias: Vec<f32>,
    tensors: Option<Tensors>,
    name: String,
}

/// What has a gradient, where candle computes.
struct Tensors {
    convolution: Tensor,
    a_log: Tensor,
    bias: Tensor,
}

/// Its form.
#[derive(Clone, Debug)]
pub(crate) struct DeltaForm {
    pub(crate) key_heads: usize,
    pub(crate) value_heads: usize,
    pub(crate) key_dim: usize,
    pub(crate) value_dim: usize,
    pub(crate) kernel: usize,
    /// Value heads are dealt out to key heads in turn, not in blocks.
    pub(crate) dealt: bool,
}

impl DeltaForm {
    fn keys(&self) -> usize {
        self.key_heads * self.key_dim
    }

    fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// What the convolution runs over: queries, keys, values.
    fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// The key head of a value head.
    fn key_head(&self, value_head: usize) -> usize {
        if self.dealt {
            value_head % self.key_heads
        } else {
            value_head / (self.value_heads / self.key_heads)
        }
    }
}

/// Keeps a vector's length from being 0.
const EPSILON: f32 = 1e-6;

impl DeltaNet {
    pub(crate) fn load(
        loader: &Loader<'_>,
        prefix: &str,
        width: usize,
        epsilon: f64,
        form: DeltaForm,
    ) -> Result<Self, LmError> {
        let name = |part: &str| format!("{prefix}.{part}");
        let (channels, values) = (form.channels(), form.values());
        let parts = [
            (name("in_proj_qkv"), channels),
            (name("in_proj_z"), values),
            (name("in_proj_b"), form.value_heads),
            (name("in_proj_a"), form.value_heads),
        ];
        let convolution = loader
            .checkpoint
            .read(&name("conv1d.weight"), &[channels, form.kernel])?
            .values()?;
        let a_log = loader.checkpoint.vector(&name("A_log"), form.value_heads)?;
        let bias = loader
            .checkpoint
            .vector(&name("dt_bias"), form.value_heads)?;
        let tensors = match &loader.backend {
            Backend::Kernels { .. } => None,
            Backend::Candle { device, .. } => Some(Tensors {
                convolution: Tensor::from_vec(
                    convolution.clone(),
                    (channels, form.kernel),
                    device,
                )?,
                a_log: Tensor::new(a_log.as_slice(), device)?,
                bias: Tensor::new(bias.as_slice(), device)?,
            }),
        };
        Ok(Self {
            input: loader.linear(width, &parts)?,
            output: loader.linear(values, &[(name("out_proj"), width)])?,
            norm: loader.norm(&name("norm"), form.value_dim, epsilon, false)?,
            convolution,
            decay: a_log.iter().map(|a| -a.exp()).collect(),
            bias,
            tensors,
            form,
            name: prefix.to_owned(),
        })
    }

    #[allow(clippy::unused_self, reason = "the same question as an attention's")]
    pub(crate) fn needs(&self) -> Needs {
        Needs::State
    }

    /// `[rows, width]` to the same.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        layer: usize,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor, LmError> {
        let all = self.input.forward(x, pass)?;
        let mixed = match &self.tensors {
            None => {
                let mixed = view::with(&all, |all| self.by_kernels(all, layer, pass))??;
                view::rows(mixed, self.form.values())?
            }
            Some(tensors) => self.by_candle(tensors, &all, layer, pass)?,
        };
        self.output.forward(&mixed, pass)
    }

    fn by_kernels(
        &self,
        all: &[f32],
        layer: usize,
        pass: &mut Pass<'_>,
    ) -> Result<Vec<f32>, LmError> {
        let form = &self.form;
        let width = self.input.outputs();
        let memory = pass
            .memory
            .as_deref_mut()
            .ok_or(LmError::Internal("no memory"))?;
        let Kept::States(states) = &mut memory.layers[layer] else {
            return Err(LmError::Internal("the layer's memory has no states"));
        };
        let mut out = Vec::with_capacity(all.len() / width * form.values());
        for (segment, slot) in pass.segments.iter().zip(&pass.slots) {
            let rows = &all[segment.rows.start * width..segment.rows.end * width];
            let (mut inputs, mut state) = match states[*slot].take() {
                Some(State::Numbers { inputs, state }) => (inputs, state),
                _ => (
                    vec![0.0; (form.kernel - 1) * form.channels()],
                    vec![0.0; form.value_heads * form.key_dim * form.value_dim],
                ),
            };
            out.extend(self.segment(rows, &mut inputs, &mut state));
            states[*slot] = Some(State::Numbers { inputs, state });
        }
        if let Some(weight) = self.norm.numbers() {
            kernels::rows::rms_norm_in_place(&mut out, weight, self.norm.epsilon);
        }
        let z = form.channels();
        for (out, row) in out
            .chunks_exact_mut(form.values())
            .zip(all.chunks_exact(width))
        {
            for (x, z) in out.iter_mut().zip(&row[z..z + form.values()]) {
                *x *= z / (1.0 + (-z).exp());
            }
        }
        Ok(out)
    }

    /// One sequence's rows to `[rows, value heads, value width]`.
    fn segment(&self, rows: &[f32], inputs: &mut Vec<f32>, state: &mut [f32]) -> Vec<f32> {
        let form = &self.form;
        let (width, channels) = (self.input.outputs(), form.channels());
        let count = rows.len() / width;
        // The last inputs, then these: `[kernel - 1 + rows, channels]`.
        let mut history = std::mem::take(inputs);
        rows.chunks_exact(width)
            .for_each(|row| history.extend_from_slice(&row[..channels]));
        let mut convolved = vec![0.0; count * channels];
        for (row, out) in convolved.chunks_exact_mut(channels).enumerate() {
            for step in 0..form.kernel {
                let input = &history[(row + step) * channels..(row + step + 1) * channels];
                for (channel, (x, input)) in out.iter_mut().zip(input).enumerate() {
                    *x += self.convolution[channel * form.kernel + step] * input;
                }
            }
            out.iter_mut().for_each(|x| *x /= 1.0 + (-*x).exp());
            for (index, head) in out[..2 * form.keys()]
                .chunks_exact_mut(form.key_dim)
                .enumerate()
            {
                let square: f32 = head.iter().map(|x| x * x).sum();
                let mut by = 1.0 / (square + EPSILON).sqrt();
                if index < form.key_heads {
                    by /= (form.key_dim as f32).sqrt();
                }
                head.iter_mut().for_each(|x| *x *= by);
            }
        }
        *inputs = history.split_off(count * channels);

        let gather = |at: usize, width: usize| -> Vec<f32> {
            let rows = convolved.chunks_exact(channels);
            rows.flat_map(|row| &row[at..at + width]).copied().collect()
        };
        let keys: Vec<[Vec<f32>; 2]> = (0..form.key_heads)
            .map(|head| {
                let at = head * form.key_dim;
                [
                    gather(at, form.key_dim),
                    gather(form.keys() + at, form.key_dim),
                ]
            })
            .collect();
        let (b, a) = (
            channels + form.values(),
            channels + form.values() + form.value_heads,
        );
        let of_values: Vec<[Vec<f32>; 3]> = (0..form.value_heads)
            .map(|head| {
                let values = gather(2 * form.keys() + head * form.value_dim, form.value_dim);
                let column = |at: usize| rows.chunks_exact(width).map(move |row| row[at + head]);
                let decay =
                    column(a).map(|a| (self.decay[head] * softplus(a + self.bias[head])).exp());
                let rate = column(b).map(|b| 1.0 / (1.0 + (-b).exp()));
                [values, decay.collect(), rate.collect()]
            })
            .collect();
        let heads = of_values
            .iter()
            .enumerate()
            .zip(state.chunks_exact_mut(form.key_dim * form.value_dim));
        let heads = heads.map(|((head, [values, decay, rate]), state)| {
            let [queries, keys] = &keys[form.key_head(head)];
            kernels::delta::Head {
                queries,
                keys,
                values,
                decay,
                rate,
                state,
            }
        });
        let outs = kernels::delta::run(heads.collect(), form.value_dim);
        let mut out = vec![0.0; count * form.values()];
        for (row, out) in out.chunks_exact_mut(form.values()).enumerate() {
            for (place, head) in out.chunks_exact_mut(form.value_dim).zip(&outs) {
                place.copy_from_slice(&head[row * form.value_dim..(row + 1) * form.value_dim]);
            }
        }
        out
    }

    fn by_candle(
        &self,
        tensors: &Tensors,
        all: &Tensor,
        layer: usize,
        pass: &mut Pass<'_>,
    ) -> Result<Tensor, LmError> {
        let form = &self.form;
        let (channels, values) = (form.channels(), form.values());
        let mut outs = Vec::with_capacity(pass.segments.len());
        for (segment, slot) in pass.segments.iter().zip(&pass.slots) {
            let rows = all.narrow(0, segment.rows.start, segment.rows.len())?;
            let states = match pass.memory.as_deref_mut() {
                None => None,
                Some(memory) => match &mut memory.layers[layer] {
                    Kept::States(states) => Some(&mut states[*slot]),
                    _ => return Err(LmError::Internal("the layer's memory has no states")),
                },
            };
            let old = match &states {
                Some(Some(State::Tensors { inputs, state })) => (inputs.clone(), state.clone()),
                _ => {
                    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, all.device());
                    (
                        zeros(&[form.kernel - 1, channels])?,
                        zeros(&[form.value_heads, form.key_dim, form.value_dim])?,
                    )
                }
            };
            let (out, inputs, state) = self.segment_tensors(tensors, &rows, old)?;
            if let Some(states) = states {
                *states = Some(State::Tensors {
                    inputs: inputs.detach(),
                    state: state.detach(),
                });
            }
            outs.push(out);
        }
        let out = Tensor::cat(&outs, 0)?;
        let rows = out.dim(0)?;
        let z = all
            .narrow(1, channels, values)?
            .contiguous()?
            .to_dtype(DType::F32)?;
        let z = z.reshape((rows, form.value_heads, form.value_dim))?;
        let gated = (self.norm.forward(&out)? * z.silu()?)?;
        Ok(gated.reshape((rows, values))?.to_dtype(all.dtype())?)
    }

    /// One sequence's rows to `[rows, value heads, value width]`, and what it leaves behind.
    fn segment_tensors(
        &self,
        tensors: &Tensors,
        rows: &Tensor,
        (inputs, mut state): (Tensor, Tensor),
    ) -> Result<(Tensor, Tensor, Tensor), LmError> {
        let form = &self.form;
        let count = rows.dim(0)?;
        let rows = rows.to_dtype(DType::F32)?;
        let (channels, values, heads) = (form.channels(), form.values(), form.value_heads);
        let history = Tensor::cat(&[inputs, rows.narrow(1, 0, channels)?], 0)?;
        let mut convolved = history.narrow(0, 0, count)?.zeros_like()?;
        for step in 0..form.kernel {
            let weight = tensors
                .convolution
                .narrow(1, step, 1)?
                .reshape((1, channels))?;
            convolved = (convolved + history.narrow(0, step, count)?.broadcast_mul(&weight)?)?;
        }
        let convolved = convolved.silu()?;
        let key_of: Vec<u32> = (0..heads)
            .map(|head| u32::try_from(form.key_head(head)).unwrap_or(0))
            .collect();
        let key_of = Tensor::new(key_of, rows.device())?;
        let unit = |at: usize| -> Result<Tensor, LmError> {
            let x = convolved.narrow(1, at, form.keys())?.contiguous()?;
            let x = x.reshape((count, form.key_heads, form.key_dim))?;
            let length = (x.sqr()?.sum_keepdim(D::Minus1)? + f64::from(EPSILON))?.sqrt()?;
            Ok(x.broadcast_div(&length)?.index_select(&key_of, 1)?)
        };
        let queries = (unit(0)? / (form.key_dim as f64).sqrt())?;
        let keys = unit(form.keys())?;
        let of_values = convolved.narrow(1, 2 * form.keys(), values)?.contiguous()?;
        let of_values = of_values.reshape((count, heads, form.value_dim))?;
        let rate = sigmoid(&rows.narrow(1, channels + values, heads)?)?;
        let a = rows.narrow(1, channels + values + heads, heads)?;
        let a = softplus_tensor(&a.broadcast_add(&tensors.bias)?)?;
        let decay = a.broadcast_mul(&tensors.a_log.exp()?)?.neg()?.exp()?;

        let mut outs = Vec::with_capacity(count);
        for row in 0..count {
            let of = |x: &Tensor, width: usize| x.get(row)?.reshape((heads, width, 1));
            let (query, key) = (of(&queries, form.key_dim)?, of(&keys, form.key_dim)?);
            state = state.broadcast_mul(&of(&decay, 1)?)?;
            let known = state.broadcast_mul(&key)?.sum(1)?;
            let change = (of_values.get(row)? - known)?;
            let change = change.broadcast_mul(&rate.get(row)?.reshape((heads, 1))?)?;
            let change = change.reshape((heads, 1, form.value_dim))?;
            state = (state + key.broadcast_mul(&change)?)?;
            outs.push(state.broadcast_mul(&query)?.sum(1)?);
        }
        let left = history.narrow(0, count, form.kernel - 1)?;
        Ok((Tensor::stack(&outs, 0)?, left, state))
    }

    /// Every tensor that can be trained, by name.
    pub(crate) fn trainable(&mut self, visit: &mut dyn FnMut(&str, &mut Tensor)) {
        self.input.trainable(visit);
        self.output.trainable(visit);
        self.norm.trainable(visit);
        if let Some(tensors) = &mut self.tensors {
            visit(
                &format!("{}.conv1d.weight", self.name),
                &mut tensors.convolution,
            );
            visit(&format!("{}.A_log", self.name), &mut tensors.a_log);
            visit(&format!("{}.dt_bias", self.name), &mut tensors.bias);
        }
    }
}

fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn softplus_tensor(x: &Tensor) -> Result<Tensor, LmError> {
    Ok((x.relu()? + ((x.abs()?.neg()?.exp()? + 1.0)?.log()?))?)
}
