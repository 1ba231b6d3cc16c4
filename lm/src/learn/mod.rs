//! The same models with gradients.
//!
//! A [`Learner`] has variables: an adapter's matrices, or all weights. It gives the
//! log-probabilities of chosen tokens, and their gradients for every variable. The modules are
//! those that generate; weights are widened.

mod chosen;
mod gradients;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use candle_core::{DType, Device, Tensor, Var};

pub use gradients::{Gradients, Pass};

use crate::{
    Adapter, LmError, arch,
    blocks::{Backend, Decoder, Span},
    random::Uniform,
    weights::Checkpoint,
};

/// A model with variables.
pub struct Learner {
    decoder: Decoder,
    device: Device,
    hash: String,
    trained: Trained,
    variables: BTreeMap<String, Var>,
    /// The adapter made of the variables.
    adapter: Option<Arc<Adapter>>,
}

/// What is trained.
#[derive(Clone, Debug, PartialEq)]
pub enum Trained {
    /// A new adapter.
    Adapter(Lora),
    /// Every weight.
    Weights,
}

/// A new adapter's form.
#[derive(Clone, Debug, PartialEq)]
pub struct Lora {
    /// The inner width of the changes.
    pub rank: usize,
    /// The changes are multiplied by `alpha / rank`.
    pub alpha: f64,
    /// The last names of the matrices that are changed, such as `q_proj`.
    pub targets: Vec<String>,
    /// Of the first matrix of each change; the second is 0, so that nothing changes yet.
    pub seed: u64,
}

/// A sequence and which of its tokens are learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supervised {
    /// The token ids.
    pub tokens: Vec<u32>,
    /// Positions of tokens whose log-probability is wanted, ascending; not the first.
    pub chosen: Vec<usize>,
}

impl Learner {
    /// Loads a GGUF file or a folder with safetensors, widened to `dtype`. On the processor it
    /// should be 32 bits: narrower ones have no fast products there.
    ///
    /// # Errors
    /// When it can't be read, is damaged, is of a kind that is not known here, or no matrix has the
    /// name of a target.
    pub fn load(
        path: &Path,
        device: &Device,
        dtype: DType,
        trained: Trained,
    ) -> Result<Self, LmError> {
        let checkpoint = Checkpoint::open(path)?;
        let backend = Backend::Candle {
            device: device.clone(),
            dtype,
            frozen: matches!(trained, Trained::Adapter(_)),
        };
        let decoder = arch::load(&checkpoint, backend)?;
        let mut learner = Self {
            decoder,
            device: device.clone(),
            hash: checkpoint.hash()?,
            trained,
            variables: BTreeMap::new(),
            adapter: None,
        };
        match learner.trained.clone() {
            Trained::Adapter(lora) => learner.begin_adapter(&lora)?,
            Trained::Weights => learner.free_weights()?,
        }
        Ok(learner)
    }

    /// The variables by name: `MODULE.lora_A` and `MODULE.lora_B`, or the weights' names.
    #[must_use]
    pub fn variables(&self) -> &BTreeMap<String, Var> {
        &self.variables
    }

    /// The SHA-256 of the files that it was loaded from.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Token ids that there are.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.decoder.vocabulary()
    }

    /// A copy of the adapter as it is now; none where all weights are trained.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn adapter(&self) -> Result<Option<Adapter>, LmError> {
        let (Trained::Adapter(lora), Some(adapter)) = (&self.trained, &self.adapter) else {
            return Ok(None);
        };
        let copy = |name: &str| -> Result<Tensor, LmError> {
            let variable = self.variables.get(name);
            let variable = variable.ok_or(LmError::Internal("a variable is missing"))?;
            Ok(variable.to_device(&Device::Cpu)?.copy()?)
        };
        let modules = adapter
            .modules()
            .map(|module| {
                let pair = (
                    copy(&format!("{module}.lora_A"))?,
                    copy(&format!("{module}.lora_B"))?,
                );
                Ok((module.to_owned(), pair))
            })
            .collect::<Result<_, LmError>>()?;
        Ok(Some(Adapter::new(modules, lora.rank, lora.alpha)?))
    }

    fn begin_adapter(&mut self, lora: &Lora) -> Result<(), LmError> {
        let mut random = Uniform::new(lora.seed);
        let mut modules = BTreeMap::new();
        let parts = self.decoder.adaptable();
        let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        for target in &lora.targets {
            if !parts.iter().any(|part| last(&part.name) == *target) {
                let mut known: Vec<String> = parts.iter().map(|part| last(&part.name)).collect();
                known.sort();
                known.dedup();
                return Err(LmError::Target {
                    target: target.clone(),
                    known: known.join("`, `"),
                });
            }
        }
        for part in parts {
            if !lora.targets.contains(&last(&part.name)) {
                continue;
            }
            // As PEFT does: uniform up to the inverse of the root of the inputs.
            let bound = (part.inputs as f64).sqrt().recip();
            let numbers: Vec<f32> = (0..lora.rank * part.inputs)
                .map(|_| ((2.0 * random.next() - 1.0) * bound) as f32)
                .collect();
            let a = Tensor::from_vec(numbers, (lora.rank, part.inputs), &self.device)?;
            let b = Tensor::zeros((part.outputs, lora.rank), DType::F32, &self.device)?;
            let (a, b) = (Var::from_tensor(&a)?, Var::from_tensor(&b)?);
            let tensors = (a.as_tensor().clone(), b.as_tensor().clone());
            self.variables.insert(format!("{}.lora_A", part.name), a);
            self.variables.insert(format!("{}.lora_B", part.name), b);
            modules.insert(part.name, tensors);
        }
        if modules.is_empty() {
            return Err(LmError::Setting {
                name: "targets",
                value: "empty".to_owned(),
                bounds: "names of matrices, such as `q_proj`",
            });
        }
        self.adapter = Some(Arc::new(Adapter::new(modules, lora.rank, lora.alpha)?));
        Ok(())
    }

    fn free_weights(&mut self) -> Result<(), LmError> {
        let mut failed = None;
        let variables = &mut self.variables;
        self.decoder
            .trainable(&mut |name, tensor| match Var::from_tensor(tensor) {
                Ok(variable) => {
                    *tensor = variable.as_tensor().clone();
                    variables.insert(name.to_owned(), variable);
                }
                Err(error) => failed = Some(error),
            });
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The natural logarithm of the probability of each chosen token, sequence by sequence, without
    /// gradients.
    ///
    /// # Errors
    /// When a position is not in its sequence, or the computation fails.
    pub fn log_probabilities(&self, sequences: &[Supervised]) -> Result<Vec<f32>, LmError> {
        let (spans, targets) = self.spans(sequences)?;
        chosen::values(&self.hidden(&spans)?, self.decoder.table(), &targets)
    }

    /// The rows before the logits of wanted tokens, without gradients.
    fn hidden(&self, spans: &[Span]) -> Result<Tensor, LmError> {
        let mut pass = self.decoder.pass(spans, None)?;
        let mut x = self.decoder.embed(spans)?;
        for (index, layer) in self.decoder.layers.iter().enumerate() {
            // Without what the way back would need.
            x = layer.forward(x.detach(), index, &mut pass)?;
        }
        Ok(self.decoder.finish(&x.detach(), spans, &pass)?.detach())
    }

    /// The sequences as one batch, and the chosen tokens.
    fn spans(&self, sequences: &[Supervised]) -> Result<(Vec<Span>, Vec<u32>), LmError> {
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
                adapter: self.adapter.clone(),
                wanted,
            });
        }
        Ok((spans, targets))
    }
}
