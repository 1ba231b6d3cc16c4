//! A model's files, whatever their format: the configuration and named tensors.
//!
//! Names and configurations are those of the safetensors world; `gguf` translates. Files are not
//! trusted: every length is checked against the file before anything is read.

mod block;
#[cfg(test)]
mod faults;
mod gguf;
mod raw;
mod safetensors;

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub(crate) use self::gguf::Vocabulary;
#[cfg(test)]
pub(crate) use self::gguf::translated;
use self::{gguf::Gguf, safetensors::Safetensors};
pub(crate) use self::{
    raw::{Kind, Raw},
    safetensors::{header, json},
};
use crate::{LmError, kernels::linear::Packed};

/// An opened model.
pub(crate) struct Checkpoint {
    format: Format,
    path: PathBuf,
}

enum Format {
    Gguf(Box<Gguf>),
    Safetensors(Safetensors),
}

impl Checkpoint {
    /// Opens a GGUF file or a folder with safetensors. Only headers are read.
    pub(crate) fn open(path: &Path) -> Result<Self, LmError> {
        let format = if path.is_dir() {
            Format::Safetensors(Safetensors::open(path)?)
        } else {
            Format::Gguf(Box::new(Gguf::open(path)?))
        };
        Ok(Self {
            format,
            path: path.to_owned(),
        })
    }

    /// The configuration, in the words of `config.json`.
    pub(crate) fn config(&self) -> &Value {
        match &self.format {
            Format::Gguf(gguf) => gguf.config(),
            Format::Safetensors(files) => files.config(),
        }
    }

    /// The tokenizer's data, where the file holds it; with safetensors it is a file of its own.
    pub(crate) fn vocabulary(&self) -> Option<&Vocabulary> {
        match &self.format {
            Format::Gguf(gguf) => Some(gguf.vocabulary()),
            Format::Safetensors(_) => None,
        }
    }

    /// The file or folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The SHA-256 of all files with weights, in hexadecimal.
    pub(crate) fn hash(&self) -> Result<String, LmError> {
        let files = match &self.format {
            Format::Gguf(_) => vec![self.path.clone()],
            Format::Safetensors(files) => files.files(),
        };
        let mut hasher = Sha256::new();
        for path in files {
            let failed = |error| LmError::Io {
                path: path.display().to_string(),
                error,
            };
            let mut file = std::fs::File::open(&path).map_err(failed)?;
            std::io::copy(&mut file, &mut hasher).map_err(failed)?;
        }
        Ok(format!("{:x}", hasher.finalize()))
    }

    /// How many weights there are, and how they are stored.
    pub(crate) fn inventory(&self) -> Vec<(String, Kind, usize)> {
        match &self.format {
            Format::Gguf(gguf) => gguf.inventory(),
            Format::Safetensors(files) => files.inventory(),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        match &self.format {
            Format::Gguf(gguf) => gguf.has(name),
            Format::Safetensors(files) => files.has(name),
        }
    }

    /// Reads a tensor that must have this shape.
    pub(crate) fn read(&self, name: &str, shape: &[usize]) -> Result<Raw, LmError> {
        let raw = match &self.format {
            Format::Gguf(gguf) => gguf.read(name)?,
            Format::Safetensors(files) => files.read(name)?,
        };
        // A convolution's weights have a middle dimension of one in some files.
        let found: Vec<usize> = raw.shape.iter().copied().filter(|n| *n != 1).collect();
        let expected: Vec<usize> = shape.iter().copied().filter(|n| *n != 1).collect();
        if found != expected {
            return Err(LmError::Shape {
                name: name.to_owned(),
                found: raw.shape,
                expected: shape.to_vec(),
            });
        }
        Ok(raw)
    }

    /// A matrix for the kernels, as narrow as it is stored or widened to 32 bits.
    pub(crate) fn packed(
        &self,
        name: &str,
        outputs: usize,
        inputs: usize,
        widen: bool,
    ) -> Result<Packed, LmError> {
        self.read(name, &[outputs, inputs])?
            .packed(outputs, inputs, widen)
    }

    /// A tensor, widened where it is quantised.
    pub(crate) fn tensor(
        &self,
        name: &str,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor, LmError> {
        let values = self.read(name, shape)?.values()?;
        Ok(Tensor::from_vec(values, shape, device)?.to_dtype(dtype)?)
    }

    /// The numbers of a short tensor.
    pub(crate) fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, LmError> {
        self.read(name, &[length])?.values()
    }

    /// A norm's weights. Some models store them less one, which GGUF files have undone.
    pub(crate) fn norm(
        &self,
        name: &str,
        length: usize,
        less_one: bool,
    ) -> Result<Vec<f32>, LmError> {
        let mut weights = self.vector(name, length)?;
        if less_one && matches!(self.format, Format::Safetensors(_)) {
            weights.iter_mut().for_each(|weight| *weight += 1.0);
        }
        Ok(weights)
    }
}
