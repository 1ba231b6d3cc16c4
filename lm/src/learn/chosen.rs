//! The log-probability of chosen tokens without logits for all of them at once.
//!
//! A row of logits is as long as the vocabulary. So they are computed for some rows at a time and
//! thrown away. A frozen table's rows give their gradient at once, on the way forward; others'
//! logits are computed once more on the way back.

use std::sync::Arc;

use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, CustomOp2, D, DType, Layout, MetalStorage, Result, Shape,
    Tensor,
    backend::{BackendDevice as _, BackendStorage as _},
};

use crate::{
    LmError,
    blocks::Table,
    kernels::{for_rows, rows::log_sum_exp},
    ops::{product::Frozen, read},
};

/// Rows whose logits are held at a time.
const CHUNK: usize = 256;
/// The same of a frozen table: few enough that they stay near the processor.
const FROZEN_CHUNK: usize = 64;

/// `hidden` is `[rows, width]`, the table is `[vocabulary, width]`, and there is a target for each
/// row; gives `[rows]`, with gradients.
pub(super) fn log_probabilities(
    hidden: &Tensor,
    table: &Table,
    targets: &[u32],
) -> std::result::Result<Tensor, LmError> {
    match table {
        Table::Tensor(table) => Ok(by_candle(hidden, table, targets, CHUNK)?),
        Table::Frozen(table) => {
            let (values, slopes) = frozen(&read(hidden)?, table, targets, true);
            let slopes = Tensor::from_vec(slopes, hidden.shape(), hidden.device())?;
            Ok(hidden.apply_op1(AlongSlopes { values, slopes })?)
        }
        Table::Packed(_) => Err(LmError::Internal("a packed table has no gradients")),
    }
}

/// The same as numbers, without gradients.
pub(super) fn values(
    hidden: &Tensor,
    table: &Table,
    targets: &[u32],
) -> std::result::Result<Vec<f32>, LmError> {
    match table {
        Table::Frozen(table) => Ok(frozen(&read(hidden)?, table, targets, false).0),
        _ => Ok(log_probabilities(hidden, table, targets)?.to_vec1()?),
    }
}

/// The log-probabilities, and, where they are wanted, their gradients for each row.
fn frozen(
    hidden: &[f32],
    table: &Arc<Frozen>,
    targets: &[u32],
    with_slopes: bool,
) -> (Vec<f32>, Vec<f32>) {
    let width = hidden.len() / targets.len().max(1);
    let mut values = Vec::with_capacity(targets.len());
    let mut slopes = Vec::new();
    for (rows, targets) in hidden
        .chunks(FROZEN_CHUNK * width)
        .zip(targets.chunks(FROZEN_CHUNK))
    {
        let mut logits = table.apply(rows);
        let vocabulary = logits.len() / targets.len();
        let mut found = vec![0.0; targets.len()];
        // The two of a row are written together: the row becomes minus its probabilities.
        let totals: Vec<f32> = logits.chunks_exact(vocabulary).map(log_sum_exp).collect();
        for (row, (value, target)) in found.iter_mut().zip(targets).enumerate() {
            *value = logits[row * vocabulary + *target as usize] - totals[row];
        }
        values.extend(found);
        if with_slopes {
            for_rows(&mut logits, vocabulary, vocabulary * 8, |first, logits| {
                for (index, row) in logits.chunks_exact_mut(vocabulary).enumerate() {
                    minus_probabilities(row, totals[first + index]);
                    row[targets[first + index] as usize] += 1.0;
                }
            });
            slopes.extend(table.apply_backward(&logits));
        }
    }
    (values, slopes)
}

fn minus_probabilities(row: &mut [f32], total: f32) {
    use crate::simd::{Kernel, LANES, Simd, dispatch};

    struct Minus<'a> {
        row: &'a mut [f32],
        total: f32,
    }

    impl Kernel for Minus<'_> {
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

    dispatch(Minus { row, total });
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

fn by_candle(hidden: &Tensor, table: &Tensor, targets: &[u32], chunk: usize) -> Result<Tensor> {
    let targets = Tensor::new(targets, hidden.device())?;
    let mut op = Chosen {
        targets,
        chunk,
        values: Vec::new(),
    };
    op.values = op.forward(&hidden.detach(), &table.detach())?;
    hidden.contiguous()?.apply_op2(table, op)
}

struct Chosen {
    targets: Tensor,
    chunk: usize,
    /// The result, which the forward pass has computed before the operation is recorded.
    values: Vec<f32>,
}

impl Chosen {
    /// The first row and the number of rows of each chunk.
    fn chunks(&self, rows: usize) -> impl Iterator<Item = (usize, usize)> {
        let chunk = self.chunk;
        (0..rows)
            .step_by(chunk)
            .map(move |first| (first, chunk.min(rows - first)))
    }

    fn logits(hidden: &Tensor, table: &Tensor) -> Result<Tensor> {
        hidden.matmul(&table.t()?)?.to_dtype(DType::F32)
    }

    fn forward(&self, hidden: &Tensor, table: &Tensor) -> Result<Vec<f32>> {
        let mut values = Vec::with_capacity(hidden.dim(0)?);
        for (first, count) in self.chunks(hidden.dim(0)?) {
            let logits = Self::logits(&hidden.narrow(0, first, count)?, table)?;
            let targets = self.targets.narrow(0, first, count)?.unsqueeze(1)?;
            let chosen = logits.gather(&targets, 1)?.squeeze(1)?;
            let total = logits.log_sum_exp(D::Minus1)?;
            values.extend((chosen - total)?.to_vec1::<f32>()?);
        }
        Ok(values)
    }
}

impl CustomOp2 for Chosen {
    fn name(&self) -> &'static str {
        "chosen-log-probabilities"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        Ok((
            CpuStorage::F32(self.values.clone()),
            Shape::from(self.values.len()),
        ))
    }

    fn cuda_fwd(
        &self,
        hidden: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let there = hidden.device().storage_from_slice(&self.values)?;
        Ok((there, Shape::from(self.values.len())))
    }

    fn metal_fwd(
        &self,
        hidden: &MetalStorage,
        _: &Layout,
        _: &MetalStorage,
        _: &Layout,
    ) -> Result<(MetalStorage, Shape)> {
        let there = hidden.device().storage_from_slice(&self.values)?;
        Ok((there, Shape::from(self.values.len())))
    }

    fn bwd(
        &self,
        hidden: &Tensor,
        table: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let learns_table = table.is_variable();
        let (hidden, table) = (hidden.detach(), table.detach());
        let mut of_hidden = Vec::new();
        let mut of_table: Option<Tensor> = None;
        for (first, count) in self.chunks(hidden.dim(0)?) {
            let rows = hidden.narrow(0, first, count)?;
            let weights = candle_nn::ops::softmax(&Self::logits(&rows, &table)?, D::Minus1)?;
            let gradient = gradient.narrow(0, first, count)?.unsqueeze(1)?;
            let targets = self.targets.narrow(0, first, count)?.unsqueeze(1)?;
            let of_logits = weights.broadcast_mul(&gradient.neg()?)?;
            let of_logits = of_logits.scatter_add(&targets, &gradient.contiguous()?, 1)?;
            let of_logits = of_logits.to_dtype(table.dtype())?;
            of_hidden.push(of_logits.matmul(&table)?);
            if learns_table {
                let part = of_logits.t()?.matmul(&rows)?;
                of_table = Some(match of_table {
                    Some(sum) => (sum + part)?,
                    None => part,
                });
            }
        }
        Ok((Some(Tensor::cat(&of_hidden, 0)?), of_table))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    #[test]
    fn chunks_and_frozen_tables_do_not_change_the_result() {
        let rows = 150;
        let hidden = Tensor::randn(0f32, 1.0, (rows, 8), &Device::Cpu).unwrap();
        let table = Tensor::randn(0f32, 1.0, (190, 8), &Device::Cpu).unwrap();
        let targets: Vec<u32> = (0..rows as u32).collect();
        let weights = Tensor::randn(0f32, 1.0, rows, &Device::Cpu).unwrap();
        let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let of = |chunk| {
            let (hidden, table) = (
                Var::from_tensor(&hidden).unwrap(),
                Var::from_tensor(&table).unwrap(),
            );
            let values = by_candle(&hidden, &table, &targets, chunk).unwrap();
            let gradients = (&values * &weights).unwrap().backward().unwrap();
            [
                flat(&values),
                flat(gradients.get(&hidden).unwrap()),
                flat(gradients.get(&table).unwrap()),
            ]
        };
        let expected = of(1000);
        for (a, b) in of(5).iter().flatten().zip(expected.iter().flatten()) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }

        let frozen = Table::Frozen(Arc::new(Frozen::new(&flat(&table), 190, 8)));
        let hidden = Var::from_tensor(&hidden).unwrap();
        let found = log_probabilities(&hidden, &frozen, &targets).unwrap();
        let gradients = (&found * &weights).unwrap().backward().unwrap();
        let all = [flat(&found), flat(gradients.get(&hidden).unwrap())];
        for (a, b) in all.iter().flatten().zip(expected.iter().flatten()) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
        assert_eq!(values(&hidden, &frozen, &targets).unwrap(), all[0]);
    }
}
