//! Matrices that read the same rows, each with its adapter.

use candle_core::Tensor;

use super::{Backend, Loader, Pass, view};
use crate::{LmError, kernels::linear::Packed};

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
            Backend::Candle { device, dtype } => {
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
            Backend::Candle { device, dtype } => {
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
        }
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
