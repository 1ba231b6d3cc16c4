//! Matrices that read the same rows, each with its adapter.

use std::{ops::Range, sync::Arc};

use candle_core::Tensor;

use super::{Backend, Loader, Pass, view};
use crate::{
    LmError,
    kernels::linear::Packed,
    ops::{
        self,
        product::{Change, Frozen},
    },
};

/// One matrix, or several that read the same rows and whose outputs lie side by side.
pub(crate) struct Linear {
    pub(crate) parts: Vec<Part>,
    weight: Weight,
    bias: Bias,
}

enum Bias {
    None,
    /// Of all outputs.
    Numbers(Vec<f32>),
    /// Of each part that has one.
    Tensors(Vec<Option<Tensor>>),
}

/// One of the matrices.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The module's name, without `.weight`.
    pub(crate) name: String,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
}

enum Weight {
    /// All parts in one where their formats allow, else each.
    Packed(Vec<Packed>),
    Tensors(Vec<Tensor>),
    /// All parts in one, not trained, in training.
    Frozen(Arc<Frozen>),
}

impl Linear {
    pub(super) fn load(
        loader: &Loader<'_>,
        inputs: usize,
        parts: &[(String, usize)],
    ) -> Result<Self, LmError> {
        let name = |part: &str| format!("{part}.weight");
        let checkpoint = loader.checkpoint;
        let weight = match &loader.backend {
            Backend::Kernels { widen } => {
                let each = parts
                    .iter()
                    .map(|(part, outputs)| checkpoint.packed(&name(part), *outputs, inputs, *widen))
                    .collect::<Result<Vec<_>, _>>()?;
                let stacked = match each.as_slice() {
                    [_] => None,
                    several => Packed::stack(&several.iter().collect::<Vec<_>>()),
                };
                Weight::Packed(stacked.map_or(each, |stacked| vec![stacked]))
            }
            backend if backend.packs_frozen() => {
                let mut numbers = Vec::new();
                for (part, outputs) in parts {
                    numbers.extend(
                        checkpoint
                            .read(&name(part), &[*outputs, inputs])?
                            .values()?,
                    );
                }
                let outputs = numbers.len() / inputs.max(1);
                Weight::Frozen(Arc::new(Frozen::new(&numbers, outputs, inputs)))
            }
            Backend::Candle { device, dtype, .. } => {
                let tensors = parts.iter().map(|(part, outputs)| {
                    checkpoint.tensor(&name(part), &[*outputs, inputs], *dtype, device)
                });
                Weight::Tensors(tensors.collect::<Result<_, _>>()?)
            }
        };
        let parts = parts
            .iter()
            .map(|(name, outputs)| Part {
                name: name.clone(),
                inputs,
                outputs: *outputs,
            })
            .collect();
        Ok(Self {
            parts,
            weight,
            bias: Bias::None,
        })
    }

    /// With the biases that the file has for the parts.
    pub(super) fn with_bias(mut self, loader: &Loader<'_>) -> Result<Self, LmError> {
        let each = self.parts.iter().map(|part| {
            let name = format!("{}.bias", part.name);
            let has = loader.checkpoint.has(&name);
            has.then(|| loader.checkpoint.vector(&name, part.outputs))
                .transpose()
        });
        let each = each.collect::<Result<Vec<_>, LmError>>()?;
        if each.iter().all(Option::is_none) {
            return Ok(self);
        }
        self.bias = match &loader.backend {
            Backend::Kernels { .. } => {
                let parts = each.into_iter().zip(&self.parts);
                let filled = parts.flat_map(|(b, part)| b.unwrap_or(vec![0.0; part.outputs]));
                Bias::Numbers(filled.collect())
            }
            Backend::Candle { device, dtype, .. } => {
                let tensor = |b: Vec<f32>| Tensor::new(b, device)?.to_dtype(*dtype);
                Bias::Tensors(
                    each.into_iter()
                        .map(|bias| bias.map(tensor).transpose())
                        .collect::<Result<_, _>>()?,
                )
            }
        };
        Ok(self)
    }

    /// The width of a row of outputs.
    pub(crate) fn outputs(&self) -> usize {
        self.parts.iter().map(|part| part.outputs).sum()
    }

    /// The memory that the weights take.
    pub(crate) fn bytes(&self) -> usize {
        match &self.weight {
            Weight::Packed(each) => each.iter().map(Packed::bytes).sum(),
            Weight::Tensors(each) => each
                .iter()
                .map(|t| t.elem_count() * t.dtype().size_in_bytes())
                .sum(),
            Weight::Frozen(all) => all.bytes(),
        }
    }

    /// `[rows, inputs]` to `[rows, outputs]`.
    pub(crate) fn forward(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor, LmError> {
        match &self.weight {
            Weight::Packed(each) => {
                let out = view::with(x, |x| self.packed(each, x, pass))??;
                view::rows(out, self.outputs())
            }
            Weight::Tensors(each) => self.tensors(each, x, pass),
            Weight::Frozen(all) => self.frozen(all, x, pass),
        }
    }

    /// With gradients of the rows and of an adapter that is on all of them.
    fn frozen(&self, all: &Arc<Frozen>, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor, LmError> {
        let adapted = pass.adapted();
        let out = match adapted.as_slice() {
            [] => ops::product::product(x, all)?,
            [(rows, adapter)] if rows.len() == x.dim(0)? => {
                let changes: Vec<_> = self
                    .parts
                    .iter()
                    .map(|part| adapter.module(&part.name))
                    .collect();
                let Some(first) = changes.iter().flatten().next() else {
                    return self.biased(ops::product::product(x, all)?);
                };
                let rank = first.a.dim(0)?;
                let change = Change {
                    outputs: self.ranges(),
                    scale: first.scale,
                    dropout: pass.dropout.map(|dropout| dropout.of(&self.parts[0].name)),
                };
                let (mut a, mut b) = (Vec::new(), Vec::new());
                for (part, lora) in self.parts.iter().zip(changes) {
                    let (of_a, of_b) = match lora {
                        Some(lora) => (lora.a.clone(), lora.b.clone()),
                        None => (
                            Tensor::zeros((rank, part.inputs), x.dtype(), x.device())?,
                            Tensor::zeros((part.outputs, rank), x.dtype(), x.device())?,
                        ),
                    };
                    a.push(of_a);
                    b.push(of_b);
                }
                let (a, b) = (Tensor::cat(&a, 0)?, Tensor::cat(&b, 0)?);
                ops::product::changed_product(x, &a, &b, all, change)?
            }
            _ => {
                return Err(LmError::Internal(
                    "training takes one adapter for all sequences",
                ));
            }
        };
        self.biased(out)
    }

    /// Which outputs each part has.
    fn ranges(&self) -> Vec<Range<usize>> {
        let mut end = 0;
        let range = |part: &Part| {
            let start = end;
            end += part.outputs;
            start..end
        };
        self.parts.iter().map(range).collect()
    }

    fn biased(&self, mut out: Tensor) -> Result<Tensor, LmError> {
        if let Bias::Tensors(biases) = &self.bias {
            let of_parts = biases
                .iter()
                .zip(&self.parts)
                .map(|(bias, part)| match bias {
                    Some(bias) => Ok(bias.clone()),
                    None => Tensor::zeros(part.outputs, out.dtype(), out.device()),
                });
            let all = Tensor::cat(&of_parts.collect::<Result<Vec<_>, _>>()?, 0)?;
            out = out.broadcast_add(&all)?;
        }
        Ok(out)
    }

    fn packed(&self, each: &[Packed], x: &[f32], pass: &Pass<'_>) -> Result<Vec<f32>, LmError> {
        let width = self.outputs();
        let mut out = match each {
            [all] => all.apply(x),
            several => {
                let rows = x.len() / several[0].inputs();
                let mut out = vec![0.0; rows * width];
                let mut column = 0;
                for part in several {
                    add(
                        &mut out,
                        width,
                        0,
                        column,
                        &part.apply(x),
                        part.outputs(),
                        1.0,
                    );
                    column += part.outputs();
                }
                out
            }
        };
        if let Bias::Numbers(bias) = &self.bias {
            for row in out.chunks_exact_mut(width) {
                row.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
            }
        }
        for (rows, adapter) in pass.adapted() {
            let mut column = 0;
            for part in &self.parts {
                if let Some(lora) = adapter.module(&part.name) {
                    let (a, b) = lora.packed()?;
                    let x = &x[rows.start * part.inputs..rows.end * part.inputs];
                    let change = b.apply(&a.apply(x));
                    add(
                        &mut out,
                        width,
                        rows.start,
                        column,
                        &change,
                        part.outputs,
                        lora.scale,
                    );
                }
                column += part.outputs;
            }
        }
        Ok(out)
    }

    fn tensors(&self, each: &[Tensor], x: &Tensor, pass: &Pass<'_>) -> Result<Tensor, LmError> {
        let mut outs = Vec::with_capacity(each.len());
        for (index, (part, weight)) in self.parts.iter().zip(each).enumerate() {
            let mut out = x.matmul(&weight.t()?)?;
            if let Bias::Tensors(biases) = &self.bias
                && let Some(bias) = &biases[index]
            {
                out = out.broadcast_add(bias)?;
            }
            for (rows, adapter) in pass.adapted() {
                let Some(lora) = adapter.module(&part.name) else {
                    continue;
                };
                let (a, b) = lora.tensors(x.device(), x.dtype())?;
                let whole = rows.len() == x.dim(0)?;
                let seen;
                let x = match pass.dropout {
                    Some(dropout) => {
                        let mask = dropout.of(&part.name).mask(x.elem_count());
                        let mask = Tensor::from_vec(mask, x.shape(), x.device())?;
                        seen = (x * mask.to_dtype(x.dtype())?)?;
                        &seen
                    }
                    None => x,
                };
                let input = if whole {
                    x.clone()
                } else {
                    x.narrow(0, rows.start, rows.len())?
                };
                let change = input.matmul(&a.t()?)?.matmul(&b.t()?)?;
                let change = (change * f64::from(lora.scale))?;
                let change = if whole {
                    change
                } else {
                    let after = x.dim(0)? - rows.end;
                    change.pad_with_zeros(0, rows.start, after)?
                };
                out = (out + change)?;
            }
            outs.push(out);
        }
        if let [out] = outs.as_slice() {
            Ok(out.clone())
        } else {
            Ok(Tensor::cat(&outs, 1)?)
        }
    }

    /// Every tensor that can be trained, by name.
    pub(crate) fn trainable(&mut self, visit: &mut dyn FnMut(&str, &mut Tensor)) {
        if let Weight::Tensors(each) = &mut self.weight {
            for (part, weight) in self.parts.iter().zip(each) {
                visit(&format!("{}.weight", part.name), weight);
            }
        }
        if let Bias::Tensors(biases) = &mut self.bias {
            for (part, bias) in self.parts.iter().zip(biases) {
                if let Some(bias) = bias {
                    visit(&format!("{}.bias", part.name), bias);
                }
            }
        }
    }
}

/// Adds narrower rows to some columns.
fn add(
    out: &mut [f32],
    width: usize,
    first: usize,
    column: usize,
    rows: &[f32],
    outputs: usize,
    scale: f32,
) {
    for (row, from) in out
        .chunks_exact_mut(width)
        .skip(first)
        .zip(rows.chunks_exact(outputs))
    {
        for (x, y) in row[column..column + outputs].iter_mut().zip(from) {
            *x += scale * y;
        }
    }
}
