//! The same models with gradients.
//!
//! A [`Learner`] gives the log-probability of chosen tokens as a tensor that has a gradient for
//! every weight that was made a variable and for every adapter that is made of variables. The
//! modules are those that generate; weights are widened, and candle computes.

mod chosen;
#[cfg(test)]
mod gradients;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use candle_core::{DType, Device, Tensor, Var};

use crate::{
    Adapter, LmError, arch,
    blocks::{Backend, Decoder, Span},
    weights::Checkpoint,
};

/// A model whose log-probabilities have gradients.
pub struct Learner {
    decoder: Decoder,
    device: Device,
    /// The table of logits is a variable.
    learns_table: bool,
}

/// A sequence and which of its tokens are learned.
#[derive(Clone, Debug)]
pub struct Supervised {
    /// The token ids.
    pub tokens: Vec<u32>,
    /// Positions of tokens whose log-probability is wanted, ascending; not the first.
    pub chosen: Vec<usize>,
}

/// Tokens whose logits are held at a time.
const CHUNK: usize = 256;

impl Learner {
    /// Loads a GGUF file or a folder with safetensors, widened to `dtype`.
    ///
    /// # Errors
    /// When it can't be read, is damaged, or is of a kind that is not known here.
    pub fn load(path: &Path, device: &Device, dtype: DType) -> Result<Self, LmError> {
        let checkpoint = Checkpoint::open(path)?;
        let backend = Backend::Candle {
            device: device.clone(),
            dtype,
        };
        let decoder = arch::load(&checkpoint, backend)?;
        Ok(Self {
            decoder,
            device: device.clone(),
            learns_table: false,
        })
    }

    /// Makes every weight a variable and gives them by name, for full fine-tuning.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub fn variables(&mut self) -> Result<BTreeMap<String, Var>, LmError> {
        let mut variables = BTreeMap::new();
        let mut failed = None;
        self.decoder
            .trainable(&mut |name, tensor| match Var::from_tensor(tensor) {
                Ok(variable) => {
                    *tensor = variable.as_tensor().clone();
                    variables.insert(name.to_owned(), variable);
                }
                Err(error) => failed = Some(error),
            });
        self.learns_table = true;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(variables),
        }
    }

    /// A new adapter of this rank on all matrices whose module's last name is one of `targets`, and
    /// its variables by PEFT's names. `A` is drawn from the seed, `B` is 0: it changes nothing yet.
    ///
    /// # Errors
    /// When no matrix has such a name.
    pub fn adapter(
        &self,
        targets: &[&str],
        rank: usize,
        alpha: f64,
        seed: u64,
    ) -> Result<(Adapter, BTreeMap<String, Var>), LmError> {
        let mut random = Normal(seed);
        let (mut modules, mut variables) = (BTreeMap::new(), BTreeMap::new());
        for part in self.decoder.adaptable() {
            let last = part.name.rsplit('.').next().unwrap_or_default();
            if !targets.contains(&last) {
                continue;
            }
            // As PEFT does: uniform with the variance of 1 / (3 * inputs), here from a normal.
            let deviation = (1.0 / (3.0 * part.inputs as f64)).sqrt();
            let numbers: Vec<f32> = (0..rank * part.inputs)
                .map(|_| (random.next() * deviation) as f32)
                .collect();
            let a = Tensor::from_vec(numbers, (rank, part.inputs), &self.device)?;
            let b = Tensor::zeros((part.outputs, rank), DType::F32, &self.device)?;
            let (a, b) = (Var::from_tensor(&a)?, Var::from_tensor(&b)?);
            let tensors = (a.as_tensor().clone(), b.as_tensor().clone());
            variables.insert(format!("{}.lora_A", part.name), a);
            variables.insert(format!("{}.lora_B", part.name), b);
            modules.insert(part.name, tensors);
        }
        if modules.is_empty() {
            let message = format!("no matrix is named one of {targets:?}");
            return Err(LmError::Adapter {
                path: "a new one".to_owned(),
                message,
            });
        }
        Ok((Adapter::new(modules, rank, alpha)?, variables))
    }

    /// The natural logarithm of the probability of each chosen token, sequence by sequence:
    /// `[chosen]`. No more than a few hundred rows of logits are held at a time, forward or back.
    ///
    /// # Errors
    /// When a position is not in its sequence, or the computation fails.
    pub fn log_probabilities(
        &self,
        sequences: &[Supervised],
        adapter: Option<&Arc<Adapter>>,
    ) -> Result<Tensor, LmError> {
        let mut targets = Vec::new();
        let mut spans = Vec::with_capacity(sequences.len());
        for sequence in sequences {
            let mut wanted = Vec::with_capacity(sequence.chosen.len());
            for position in &sequence.chosen {
                match (position.checked_sub(1), sequence.tokens.get(*position)) {
                    (Some(before), Some(token)) => {
                        wanted.push(before);
                        targets.push(*token);
                    }
                    _ => {
                        return Err(LmError::Setting {
                            name: "chosen",
                            value: position.to_string(),
                            bounds: "a position of the sequence, not its first",
                        });
                    }
                }
            }
            spans.push(Span {
                tokens: sequence.tokens.clone(),
                start: 0,
                table: Vec::new(),
                slot: 0,
                adapter: adapter.cloned(),
                wanted,
            });
        }
        let hidden = self.decoder.hidden(&spans, None)?;
        let table = self
            .decoder
            .table()
            .ok_or(LmError::Internal("no table of logits"))?;
        chosen::log_probabilities(&hidden, table, &targets, CHUNK, self.learns_table)
    }
}

/// Normal random numbers from a seed, by the method of Box and Muller (1958).
struct Normal(u64);

impl Normal {
    fn next(&mut self) -> f64 {
        let mut uniform = || {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        };
        let (a, b) = (1.0 - uniform(), uniform());
        (-2.0 * a.ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
    }
}
