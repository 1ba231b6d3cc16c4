//! Low-rank adapters, applied beside the weights that they change.
//!
//! Source: Hu et al.: LoRA (2021). Files are those of Hugging Face's PEFT.

mod peft;

use std::{collections::BTreeMap, path::Path, sync::OnceLock};

use candle_core::{DType, Device, Tensor};
use sha2::{Digest as _, Sha256};

use crate::{
    LmError,
    blocks::{Decoder, Part},
    kernels::{
        dense::{Dense, Precision},
        linear::Packed,
    },
};

/// An adapter: for some of a model's matrices `W`, the change `scale * B A`.
#[derive(Debug)]
pub struct Adapter {
    modules: BTreeMap<String, Lora>,
    rank: usize,
    alpha: f64,
    hash: String,
}

/// The change of one matrix.
#[derive(Debug)]
pub(crate) struct Lora {
    /// `[rank, inputs]`
    pub(crate) a: Tensor,
    /// `[outputs, rank]`
    pub(crate) b: Tensor,
    pub(crate) scale: f32,
    packed: OnceLock<(Packed, Packed)>,
}

impl Lora {
    fn new(a: Tensor, b: Tensor, scale: f32) -> Self {
        Self {
            a,
            b,
            scale,
            packed: OnceLock::new(),
        }
    }

    /// Both for the kernels.
    pub(crate) fn packed(&self) -> Result<(&Packed, &Packed), LmError> {
        if self.packed.get().is_none() {
            let pack = |tensor: &Tensor| -> Result<Packed, LmError> {
                let (outputs, inputs) = tensor.dims2()?;
                let numbers = tensor
                    .to_dtype(DType::F32)?
                    .flatten_all()?
                    .to_vec1::<f32>()?;
                Ok(Packed::Dense(Dense::pack(
                    &numbers,
                    outputs,
                    inputs,
                    Precision::F32,
                )))
            };
            let _ = self.packed.set((pack(&self.a)?, pack(&self.b)?));
        }
        let (a, b) = self
            .packed
            .get()
            .ok_or(LmError::Internal("an adapter was not packed"))?;
        Ok((a, b))
    }

    /// Both where candle computes.
    pub(crate) fn tensors(
        &self,
        device: &Device,
        dtype: DType,
    ) -> Result<(Tensor, Tensor), LmError> {
        let there = |tensor: &Tensor| tensor.to_device(device)?.to_dtype(dtype);
        Ok((there(&self.a)?, there(&self.b)?))
    }
}

impl Adapter {
    /// Makes an adapter of `A` and `B` by module name, such as `model.layers.0.self_attn.q_proj`.
    /// They may be variables: then a forward pass has gradients for them.
    ///
    /// # Errors
    /// When shapes do not fit each other.
    pub fn new(
        modules: BTreeMap<String, (Tensor, Tensor)>,
        rank: usize,
        alpha: f64,
    ) -> Result<Self, LmError> {
        let scale = (alpha / rank.max(1) as f64) as f32;
        let modules: BTreeMap<String, Lora> = modules
            .into_iter()
            .map(|(name, (a, b))| (name, Lora::new(a, b, scale)))
            .collect();
        let hash = hash(&modules)?;
        Ok(Self {
            modules,
            rank,
            alpha,
            hash,
        })
    }

    /// Reads a folder with `adapter_config.json` and `adapter_model.safetensors`.
    ///
    /// # Errors
    /// When it can't be read, is damaged, or asks for what is not known here.
    pub fn load(folder: &Path) -> Result<Self, LmError> {
        peft::load(folder)
    }

    /// Writes such a folder, which PEFT loads.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn save(&self, folder: &Path, base_model: &str) -> Result<(), LmError> {
        peft::save(self, folder, base_model)
    }

    /// The SHA-256 of all that it holds, in hexadecimal.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The inner width of the changes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The names of the matrices that it changes.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().map(String::as_str)
    }

    pub(crate) fn module(&self, name: &str) -> Option<&Lora> {
        self.modules.get(name)
    }

    /// Refuses an adapter whose names or shapes are not the model's.
    pub(crate) fn check(&self, decoder: &Decoder, path: &str) -> Result<(), LmError> {
        let refused = |message: String| LmError::Adapter {
            path: path.to_owned(),
            message,
        };
        if self.modules.is_empty() {
            return Err(refused("it changes no matrix".to_owned()));
        }
        let parts: BTreeMap<String, Part> = decoder
            .adaptable()
            .into_iter()
            .map(|part| (part.name.clone(), part))
            .collect();
        for (name, lora) in &self.modules {
            let part = parts
                .get(name)
                .ok_or_else(|| refused(format!("the model has no matrix `{name}`")))?;
            let ((rank, inputs), (outputs, rank_2)) = (lora.a.dims2()?, lora.b.dims2()?);
            if (inputs, outputs) != (part.inputs, part.outputs) || rank != rank_2 {
                return Err(refused(format!(
                    "`{name}` changes {inputs} inputs and {outputs} outputs with ranks {rank} and \
                     {rank_2}; the model's matrix has {} and {}",
                    part.inputs, part.outputs
                )));
            }
        }
        Ok(())
    }
}

fn hash(modules: &BTreeMap<String, Lora>) -> Result<String, LmError> {
    let mut hasher = Sha256::new();
    for (name, lora) in modules {
        hasher.update(name.as_bytes());
        hasher.update(lora.scale.to_le_bytes());
        for tensor in [&lora.a, &lora.b] {
            let numbers = tensor
                .to_dtype(DType::F32)?
                .flatten_all()?
                .to_vec1::<f32>()?;
            hasher.update((numbers.len() as u64).to_le_bytes());
            hasher.update(bytemuck::cast_slice::<f32, u8>(&numbers));
        }
    }
    Ok(format!("{:x}", hasher.finalize()))
}
