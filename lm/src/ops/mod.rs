//! Operations with gradients that run this crate's kernels, for training on the processor.
//!
//! Candle records each of them as one operation. What candle's own, smaller operations would keep
//! for the way back (squares, cosines, probabilities, gradients of weights that are frozen) is
//! computed again or not at all, so that a step takes less time and much less memory.

pub(crate) mod attention;
pub(crate) mod gated;
pub(crate) mod norm;
pub(crate) mod product;

use std::ops::{Deref, Range};

use candle_core::{CpuStorage, DType, Error, Layout, Result, Shape, Storage, Tensor};

/// Whether these operations take a tensor.
pub(crate) fn take(x: &Tensor) -> bool {
    x.device().is_cpu() && x.dtype() == DType::F32
}

/// The numbers of an argument.
fn numbers<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(numbers), Some((from, to))) => Ok(&numbers[from..to]),
        _ => Err(Error::Msg(
            "a tensor of 32 bits without gaps is needed".to_owned(),
        )),
    }
}

/// The numbers of a tensor that lies without gaps.
struct Read<G> {
    storage: G,
    range: Range<usize>,
}

impl<G: Deref<Target = Storage>> Deref for Read<G> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(CpuStorage::F32(numbers)) => &numbers[self.range.clone()],
            _ => &[],
        }
    }
}

pub(crate) fn read(tensor: &Tensor) -> Result<impl Deref<Target = [f32]> + '_> {
    let (storage, layout) = tensor.storage_and_layout();
    let range = match &*storage {
        Storage::Cpu(storage) => {
            numbers(storage, layout)?;
            layout
                .contiguous_offsets()
                .map_or(0..0, |(from, to)| from..to)
        }
        _ => return Err(Error::Msg("a tensor on the processor is needed".to_owned())),
    };
    Ok(Read { storage, range })
}

/// A result of rows.
fn rows(numbers: Vec<f32>, width: usize) -> (CpuStorage, Shape) {
    let count = numbers.len() / width.max(1);
    (CpuStorage::F32(numbers), Shape::from((count, width)))
}

fn tensor(numbers: Vec<f32>, like: &Tensor) -> Result<Tensor> {
    Tensor::from_vec(numbers, like.shape(), like.device())
}
