//! Of any other table: logits are computed once more on the way back.

use candle_core::{
    CpuStorage, CudaStorage, CustomOp2, D, DType, Layout, MetalStorage, Result, Shape, Tensor,
    backend::{BackendDevice as _, BackendStorage as _},
};

/// As tensors; `chunk` rows of logits are held at a time.
pub(super) fn log_probabilities(
    hidden: &Tensor,
    table: &Tensor,
    targets: &[u32],
    chunk: usize,
) -> Result<Tensor> {
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
