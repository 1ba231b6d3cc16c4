//! From tensors on the processor to slices and back.

use candle_core::{CpuStorage, Device, Storage, Tensor};

use crate::LmError;

/// Calls `work` with a tensor's numbers, in order.
pub(crate) fn with<T>(tensor: &Tensor, work: impl FnOnce(&[f32]) -> T) -> Result<T, LmError> {
    {
        let (storage, layout) = tensor.storage_and_layout();
        if let (Storage::Cpu(CpuStorage::F32(numbers)), Some((from, to))) =
            (&*storage, layout.contiguous_offsets())
        {
            return Ok(work(&numbers[from..to]));
        }
    }
    Ok(work(&tensor.flatten_all()?.to_vec1::<f32>()?))
}

/// Rows as a tensor on the processor.
pub(crate) fn rows(numbers: Vec<f32>, width: usize) -> Result<Tensor, LmError> {
    let count = numbers.len() / width.max(1);
    Ok(Tensor::from_vec(numbers, (count, width), &Device::Cpu)?)
}
