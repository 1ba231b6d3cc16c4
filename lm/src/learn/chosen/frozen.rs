//! Of a frozen table: the gradient of each row is known on the way forward already.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};

use crate::{
    kernels::{for_rows, rows::log_sum_exp},
    ops::product::Frozen,
    simd::{Kernel, LANES, Simd, dispatch},
};

/// Rows whose logits are held at a time: few enough that they stay near the processor.
const CHUNK: usize = 64;

/// The log-probabilities as a tensor with these gradients of each row.
pub(super) fn along(hidden: &Tensor, values: Vec<f32>, slopes: Vec<f32>) -> Result<Tensor> {
    let slopes = Tensor::from_vec(slopes, hidden.shape(), hidden.device())?;
    hidden.apply_op1(AlongSlopes { values, slopes })
}

/// The log-probabilities, and, where they are wanted, their gradients for each row.
pub(super) fn values(
    hidden: &[f32],
    table: &Arc<Frozen>,
    targets: &[u32],
    with_slopes: bool,
) -> (Vec<f32>, Vec<f32>) {
    let width = hidden.len() / targets.len().max(1);
    let mut values = Vec::with_capacity(targets.len());
    let mut slopes = Vec::new();
    for (rows, targets) in hidden.chunks(CHUNK * width).zip(targets.chunks(CHUNK)) {
        let mut logits = table.apply(rows);
        let vocabulary = logits.len() / targets.len();
        let totals: Vec<f32> = logits.chunks_exact(vocabulary).map(log_sum_exp).collect();
        let each = logits.chunks_exact(vocabulary).zip(targets).zip(&totals);
        values.extend(each.map(|((row, target), total)| row[*target as usize] - total));
        if with_slopes {
            // A logit's gradient: 1 at the target, less its probability.
            for_rows(&mut logits, vocabulary, vocabulary * 8, |first, logits| {
                for (index, row) in logits.chunks_exact_mut(vocabulary).enumerate() {
                    let total = totals[first + index];
                    dispatch(MinusProbabilities { row, total });
                    row[targets[first + index] as usize] += 1.0;
                }
            });
            slopes.extend(table.apply_backward(&logits));
        }
    }
    (values, slopes)
}

/// A row of logits becomes minus its probabilities.
struct MinusProbabilities<'a> {
    row: &'a mut [f32],
    /// The logarithm of the sum of all exponentials.
    total: f32,
}

impl Kernel for MinusProbabilities<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (lanes, rest) = self.row.as_chunks_mut::<LANES>();
        for x in lanes {
            let e = s.exp(s.sub(s.load(x), s.splat(self.total)));
            s.store(s.sub(s.splat(0.0), e), x);
        }
        for x in rest {
            *x = -(*x - self.total).exp();
        }
    }
}

/// Numbers whose gradients for each row are known already.
struct AlongSlopes {
    values: Vec<f32>,
    slopes: Tensor,
}

impl CustomOp1 for AlongSlopes {
    fn name(&self) -> &'static str {
        "chosen-log-probabilities"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((
            CpuStorage::F32(self.values.clone()),
            Shape::from(self.values.len()),
        ))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(self.slopes.broadcast_mul(&gradient.unsqueeze(1)?)?))
    }
}
