//! A tensor as a file stores it.

use std::borrow::Cow;

use candle_core::{
    Device,
    quantized::{GgmlDType, QStorage, QTensor},
};
use half::{bf16, f16};

use super::block;
use crate::{
    LmError,
    kernels::{
        dense::{Dense, Precision},
        linear::Packed,
        quantised::{BLOCK, Quantised},
    },
};

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F16,
    Bf16,
    /// Blocks of a GGUF type.
    Ggml(GgmlDType),
}

impl Kind {
    /// The bytes of so many numbers; none where they fill no whole blocks.
    pub(crate) fn bytes(self, numbers: usize) -> Option<usize> {
        match self {
            Self::F32 => numbers.checked_mul(4),
            Self::F16 | Self::Bf16 => numbers.checked_mul(2),
            Self::Ggml(kind) => {
                let whole = numbers.is_multiple_of(kind.block_size());
                whole.then(|| (numbers / kind.block_size()).checked_mul(kind.type_size()))?
            }
        }
    }
}

/// A tensor's shape, outermost dimension first, and its bytes.
pub(crate) struct Raw {
    pub(crate) shape: Vec<usize>,
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

impl Raw {
    /// The numbers.
    pub(crate) fn values(&self) -> Result<Vec<f32>, LmError> {
        let pairs = || {
            self.bytes
                .as_chunks::<2>()
                .0
                .iter()
                .map(|pair| u16::from_le_bytes(*pair))
        };
        Ok(match self.kind {
            Kind::F32 => self
                .bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect(),
            Kind::F16 => pairs().map(|bits| f16::from_bits(bits).to_f32()).collect(),
            Kind::Bf16 => pairs().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
            Kind::Ggml(kind) => {
                let storage = QStorage::from_data(Cow::Borrowed(&self.bytes), &Device::Cpu, kind)?;
                let tensor = QTensor::new(storage, self.shape.as_slice())?;
                tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()?
            }
        })
    }

    /// The matrix for the kernels.
    pub(crate) fn packed(
        &self,
        outputs: usize,
        inputs: usize,
        widen: bool,
    ) -> Result<Packed, LmError> {
        if !widen
            && let Kind::Ggml(kind) = self.kind
            && let Some(layout) = block::layout(kind)
            && inputs.is_multiple_of(kind.block_size())
        {
            let per_row = inputs / BLOCK;
            return Ok(Packed::Quantised(Quantised::pack(
                outputs,
                inputs,
                layout,
                |output, b| block::unpack(kind, &self.bytes, output * per_row + b),
            )));
        }
        let precision = match self.kind {
            _ if widen => Precision::F32,
            Kind::F16 => Precision::F16,
            Kind::Bf16 => Precision::Bf16,
            // Blocks that the kernels do not know are widened.
            Kind::F32 | Kind::Ggml(_) => Precision::F32,
        };
        Ok(Packed::Dense(Dense::pack(
            &self.values()?,
            outputs,
            inputs,
            precision,
        )))
    }

    /// Moves whole rows: row `i` becomes what row `from(i)` was.
    pub(crate) fn permute_rows(&mut self, from: impl Fn(usize) -> usize) {
        let rows = self.shape.first().copied().unwrap_or(1).max(1);
        let width = self.bytes.len() / rows;
        let old = std::mem::take(&mut self.bytes);
        self.bytes = (0..rows)
            .flat_map(|row| &old[from(row) * width..][..width])
            .copied()
            .collect();
    }
}
