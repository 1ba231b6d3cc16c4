//! Products with weights that are not trained, perhaps with a low-rank change that is.
//!
//! The weights are packed twice, once for each direction, and have no gradient of their own.

use std::{ops::Range, sync::Arc};

use candle_core::{CpuStorage, CustomOp1, CustomOp3, Layout, Result, Shape, Tensor};

use super::{numbers, read, rows};
use crate::{
    kernels::{
        dense::{Dense, Precision},
        linear::Packed,
    },
    random::mix,
};

/// A matrix that is not trained.
pub(crate) struct Frozen {
    forward: Packed,
    backward: Packed,
}

impl Frozen {
    /// From `[outputs, inputs]`.
    pub(crate) fn new(weights: &[f32], outputs: usize, inputs: usize) -> Self {
        Self {
            forward: Packed::Dense(Dense::pack(weights, outputs, inputs, Precision::F32)),
            backward: Packed::Dense(Dense::pack_transposed(weights, inputs, outputs)),
        }
    }

    /// `[rows, inputs]` to `[rows, outputs]`.
    pub(crate) fn apply(&self, rows: &[f32]) -> Vec<f32> {
        self.forward.apply(rows)
    }

    /// The gradient of the rows from that of the outputs.
    pub(crate) fn apply_backward(&self, gradient: &[f32]) -> Vec<f32> {
        self.backward.apply(gradient)
    }

    /// The weights of one output.
    pub(crate) fn row(&self, output: usize) -> Vec<f32> {
        self.forward.row(output)
    }

    /// Its size in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.forward.bytes() + self.backward.bytes()
    }
}

/// `[rows, inputs]` to `[rows, outputs]`.
pub(crate) fn product(x: &Tensor, weights: &Arc<Frozen>) -> Result<Tensor> {
    x.contiguous()?.apply_op1(Product(Arc::clone(weights)))
}

struct Product(Arc<Frozen>);

impl CustomOp1 for Product {
    fn name(&self) -> &'static str {
        "product"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let out = self.0.apply(numbers(x, layout)?);
        Ok(rows(out, self.0.forward.outputs()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let out = self.0.apply_backward(&read(&gradient)?);
        Ok(Some(Tensor::from_vec(out, x.shape(), x.device())?))
    }
}

/// The change of one or several matrices that read the same rows.
pub(crate) struct Change {
    /// Which outputs each matrix has; all have the same rank.
    pub(crate) outputs: Vec<Range<usize>>,
    pub(crate) scale: f32,
    pub(crate) dropout: Option<Dropout>,
}

/// Numbers of the rows that a change does not see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dropout {
    /// The share that is left out.
    pub(crate) share: f32,
    pub(crate) seed: u64,
}

impl Dropout {
    /// That of one matrix.
    pub(crate) fn of(self, name: &str) -> Self {
        let seed = name
            .bytes()
            .fold(self.seed, |seed, byte| mix(seed ^ u64::from(byte)));
        Self { seed, ..self }
    }

    /// What each number is multiplied by: 0, or, where it is left, as much that the mean stays.
    pub(crate) fn mask(self, count: usize) -> Vec<f32> {
        let larger = 1.0 / (1.0 - self.share);
        let bound = (f64::from(self.share) * 2f64.powi(64)) as u64;
        let kept = |index: u64| mix(self.seed.wrapping_add(index)) >= bound;
        (0..count as u64)
            .map(|index| if kept(index) { larger } else { 0.0 })
            .collect()
    }

    fn apply(self, rows: &[f32]) -> Vec<f32> {
        let mask = self.mask(rows.len());
        rows.iter().zip(mask).map(|(x, m)| x * m).collect()
    }
}

/// The same with `scale * B A` added to the weights: `a` is `[matrices * rank, inputs]`, `b` is
/// `[outputs, rank]`.
pub(crate) fn changed_product(
    x: &Tensor,
    a: &Tensor,
    b: &Tensor,
    weights: &Arc<Frozen>,
    change: Change,
) -> Result<Tensor> {
    let op = Changed {
        weights: Arc::clone(weights),
        change,
    };
    x.contiguous()?
        .apply_op3(&a.contiguous()?, &b.contiguous()?, op)
}

struct Changed {
    weights: Arc<Frozen>,
    change: Change,
}

impl Changed {
    /// `B` as a matrix from all inner numbers to all outputs: zero where they are of different
    /// matrices.
    fn spread(&self, b: &[f32]) -> (Vec<f32>, usize) {
        let matrices = self.change.outputs.len();
        let outputs = self.weights.forward.outputs();
        let rank = b.len() / outputs.max(1);
        let inner = matrices * rank;
        let mut spread = vec![0.0; outputs * inner];
        for (matrix, range) in self.change.outputs.iter().enumerate() {
            for output in range.clone() {
                let from = &b[output * rank..][..rank];
                spread[output * inner + matrix * rank..][..rank].copy_from_slice(from);
            }
        }
        (spread, inner)
    }

    fn seen<'a>(&self, x: &'a [f32]) -> std::borrow::Cow<'a, [f32]> {
        match &self.change.dropout {
            Some(dropout) => dropout.apply(x).into(),
            None => x.into(),
        }
    }

    fn forward(&self, x: &[f32], a: &[f32], b: &[f32]) -> Vec<f32> {
        let (inputs, outputs) = (
            self.weights.forward.inputs(),
            self.weights.forward.outputs(),
        );
        let (mut spread, inner) = self.spread(b);
        spread.iter_mut().for_each(|x| *x *= self.change.scale);
        let between = dense(a, inner, inputs).apply(&self.seen(x));
        let mut out = self.weights.apply(x);
        dense(&spread, outputs, inner).add_to(&between, &mut out);
        out
    }
}

fn dense(weights: &[f32], outputs: usize, inputs: usize) -> Packed {
    Packed::Dense(Dense::pack(weights, outputs, inputs, Precision::F32))
}

fn transposed(weights: &[f32], outputs: usize, inputs: usize) -> Packed {
    Packed::Dense(Dense::pack_transposed(weights, outputs, inputs))
}

impl CustomOp3 for Changed {
    fn name(&self) -> &'static str {
        "changed-product"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        a: &CpuStorage,
        a_layout: &Layout,
        b: &CpuStorage,
        b_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, a) = (numbers(x, x_layout)?, numbers(a, a_layout)?);
        let out = self.forward(x, a, numbers(b, b_layout)?);
        Ok(rows(out, self.weights.forward.outputs()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        a: &Tensor,
        b: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let (outputs, inputs) = (
            self.weights.forward.outputs(),
            self.weights.forward.inputs(),
        );
        let device = x.device();
        let mut of_x = self.weights.apply_backward(&read(&gradient)?);
        let (spread, inner) = self.spread(&read(b)?);

        let (x_numbers, a_numbers) = (read(x)?, read(a)?);
        let seen = self.seen(&x_numbers);
        let between = dense(&a_numbers, inner, inputs).apply(&seen);
        let mut of_between = transposed(&spread, inner, outputs).apply(&read(&gradient)?);
        of_between.iter_mut().for_each(|x| *x *= self.change.scale);

        // A change that does not see a number has no gradient for it.
        let through = transposed(&a_numbers, inputs, inner);
        match &self.change.dropout {
            None => through.add_to(&of_between, &mut of_x),
            Some(dropout) => {
                let change = dropout.apply(&through.apply(&of_between));
                of_x.iter_mut().zip(change).for_each(|(x, y)| *x += y);
            }
        }
        let count = seen.len() / inputs;
        let of_between = Tensor::from_vec(of_between, (count, inner), device)?;
        let of_a = match seen {
            std::borrow::Cow::Borrowed(_) => of_between.t()?.matmul(x)?,
            std::borrow::Cow::Owned(seen) => {
                of_between
                    .t()?
                    .matmul(&Tensor::from_vec(seen, (count, inputs), device)?)?
            }
        };
        let between = Tensor::from_vec(between, (count, inner), device)?;
        let rank = b.dim(1)?;
        let of_b = self
            .change
            .outputs
            .iter()
            .enumerate()
            .map(|(matrix, range)| {
                let gradient = gradient.narrow(1, range.start, range.len())?;
                let between = between.narrow(1, matrix * rank, rank)?;
                gradient.t()?.matmul(&between)? * f64::from(self.change.scale)
            });
        let of_b = Tensor::cat(&of_b.collect::<Result<Vec<_>>>()?, 0)?;
        Ok((
            Some(Tensor::from_vec(of_x, x.shape(), device)?),
            Some(of_a),
            Some(of_b),
        ))
    }
}
