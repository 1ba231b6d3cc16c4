//! Steps of training: passes, gradients, the optimizer.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use candle_core::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};
use whale_lm::{Adapter, Learner, Pass, Supervised};

use crate::{
    Recompute, Settings, TrainError,
    data::{Bounds, Sequence, micro_batches, minibatches},
    optimizer::AdamW,
    settings::{Method, Precision},
};

/// A model in training.
pub struct Trainer {
    learner: Learner,
    optimizer: AdamW,
    settings: Settings,
    seed: u64,
    base: PathBuf,
}

/// What was trained, in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// A PEFT folder.
    Adapter(PathBuf),
    /// A file of safetensors with all weights.
    Weights(PathBuf),
}

/// What one update did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Update {
    /// Minus the mean log-probability of the supervised tokens, each as it was before its step.
    pub loss: f64,
    /// Supervised tokens.
    pub supervised: usize,
    /// All tokens that were computed.
    pub tokens: usize,
    /// Sequences.
    pub sequences: usize,
    /// Steps of the optimizer.
    pub steps: usize,
    /// The longest that all gradients together were, before clipping.
    pub gradient: f64,
    /// The rate of the last step.
    pub rate: f64,
    /// How far sampler and trainer are apart on the first minibatch, before it changed anything.
    pub parity: Option<Parity>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// How far apart the sampler's and the trainer's log-probabilities of the same tokens are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Parity {
    /// The mean absolute difference.
    pub mean: f64,
    /// The largest.
    pub largest: f64,
    /// Tokens that were compared.
    pub tokens: usize,
}

/// Token budgets beyond which layers are computed again.
const LONG: usize = 4;

const OPTIMIZER: &str = "optimizer.safetensors";
const WEIGHTS: &str = "weights.safetensors";
const ADAPTER: &str = "adapter";

impl Trainer {
    /// Loads the model `base`, a GGUF file or a folder with safetensors, to train it.
    ///
    /// # Errors
    /// When a setting is out of its bounds or the model can't be loaded.
    pub fn load(
        base: &Path,
        device: &Device,
        settings: &Settings,
        seed: u64,
    ) -> Result<Self, TrainError> {
        settings.check()?;
        let dtype = match settings.precision {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
        };
        Ok(Self {
            learner: Learner::load(base, device, dtype, settings.trained(seed))?,
            optimizer: AdamW::new(settings),
            settings: settings.clone(),
            seed,
            base: base.to_owned(),
        })
    }

    /// What a sequence may be.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        Bounds {
            vocabulary: self.learner.vocabulary(),
            longest: self.settings.longest,
        }
    }

    /// The SHA-256 of the model's files.
    #[must_use]
    pub fn model_hash(&self) -> &str {
        self.learner.hash()
    }

    /// The adapter as it is now; none where all weights are trained.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn adapter(&self) -> Result<Option<Adapter>, TrainError> {
        Ok(self.learner.adapter()?)
    }

    /// The model in training.
    #[must_use]
    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    /// Steps of the optimizer that were taken.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.optimizer.steps()
    }

    /// Learns sequences once: a step of the optimizer for each minibatch. `number` is the update's
    /// number, from which the order is drawn; `progress` in [0, 1] says how much of the phase is
    /// over. Without sequences it changes nothing.
    ///
    /// # Errors
    /// When a sequence can't be learned from, sampler and trainer disagree, or the loss or a
    /// gradient is no number.
    pub fn update(
        &mut self,
        sequences: Vec<Sequence>,
        number: u64,
        progress: f64,
    ) -> Result<Update, TrainError> {
        let begun = Instant::now();
        for sequence in &sequences {
            sequence.check(self.bounds())?;
        }
        let mut update = Update {
            sequences: sequences.len(),
            ..Update::default()
        };
        let order = self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut total = 0.0;
        for minibatch in minibatches(sequences, self.settings.minibatch, order) {
            let step = self.step(&minibatch)?;
            if update.parity.is_none() {
                update.parity = parity(&minibatch, &step.log_probabilities);
                self.alarm(update.parity)?;
            }
            let (gradient, rate) = self.apply(&minibatch, &step, progress)?;
            total -= step
                .log_probabilities
                .iter()
                .map(|p| f64::from(*p))
                .sum::<f64>();
            update.supervised += step.log_probabilities.len();
            update.tokens += minibatch
                .iter()
                .map(|s| s.supervised.tokens.len())
                .sum::<usize>();
            update.steps += 1;
            update.gradient = update.gradient.max(gradient);
            update.rate = rate;
        }
        update.loss = total / update.supervised.max(1) as f64;
        update.seconds = begun.elapsed().as_secs_f64();
        Ok(update)
    }

    fn alarm(&self, parity: Option<Parity>) -> Result<(), TrainError> {
        match parity {
            Some(parity) if parity.mean.is_nan() || parity.mean > self.settings.parity => {
                Err(TrainError::Parity {
                    mean: parity.mean,
                    bound: self.settings.parity,
                    tokens: parity.tokens,
                })
            }
            _ => Ok(()),
        }
    }

    /// The gradients of a minibatch: of the mean over all its supervised tokens, in however many
    /// passes it is computed.
    fn step(&self, minibatch: &[Sequence]) -> Result<Step, TrainError> {
        let learned: usize = minibatch.iter().map(Sequence::learned).sum();
        let mut step = Step::default();
        for (index, sequences) in micro_batches(minibatch, self.settings.token_budget).enumerate() {
            let supervised: Vec<Supervised> =
                sequences.iter().map(|s| s.supervised.clone()).collect();
            let tokens: usize = supervised.iter().map(|s| s.tokens.len()).sum();
            let how = Pass {
                recompute: match self.settings.recompute {
                    Recompute::Always => true,
                    Recompute::Never => false,
                    Recompute::Auto => tokens > LONG * self.settings.token_budget,
                },
                dropout: (self.settings.dropout > 0.0)
                    .then(|| (self.settings.dropout as f32, self.dropout_seed(index))),
            };
            let found = self
                .learner
                .gradients(&supervised, 1.0 / learned as f64, how)?;
            step.log_probabilities.extend(found.log_probabilities);
            for (name, gradient) in found.by_name {
                let sum = match step.gradients.remove(&name) {
                    Some(before) => (before + gradient)?,
                    None => gradient,
                };
                step.gradients.insert(name, sum);
            }
        }
        Ok(step)
    }

    fn dropout_seed(&self, pass: usize) -> u64 {
        let step = self.optimizer.steps().wrapping_mul(0xd134_2543_de82_ef95);
        self.seed ^ step ^ (pass as u64).rotate_left(48)
    }

    fn apply(
        &mut self,
        minibatch: &[Sequence],
        step: &Step,
        progress: f64,
    ) -> Result<(f64, f64), TrainError> {
        let number = self.optimizer.steps();
        if let Some(value) = step.log_probabilities.iter().find(|p| !p.is_finite()) {
            return Err(TrainError::Diverged {
                what: "a log-probability",
                value: f64::from(*value),
                step: number + 1,
            });
        }
        self.check_reach(minibatch, &step.gradients)?;
        let factor = self
            .settings
            .schedule
            .factor(number, self.settings.warm_up, progress);
        let rate = self.settings.learning_rate * factor;
        let gradient = self
            .optimizer
            .step(self.learner.variables(), &step.gradients, rate)?;
        Ok((gradient, rate))
    }

    /// Every variable must have a gradient that is not zero. A new adapter's first matrices have
    /// none as long as the second are zero; nor have queries where nothing is looked back at.
    fn check_reach(
        &self,
        minibatch: &[Sequence],
        gradients: &BTreeMap<String, Tensor>,
    ) -> Result<(), TrainError> {
        let begun = self.optimizer.steps() > 0;
        let looks_back = minibatch.iter().any(|sequence| {
            sequence
                .supervised
                .chosen
                .iter()
                .any(|position| *position > 1)
        });
        if !looks_back {
            return Ok(());
        }
        for (name, gradient) in gradients {
            if !begun && name.ends_with(".lora_A") {
                continue;
            }
            let largest = gradient
                .abs()?
                .to_dtype(DType::F32)?
                .max_all()?
                .to_scalar::<f32>()?;
            if largest == 0.0 {
                return Err(TrainError::NoGradient {
                    name: name.clone(),
                    step: self.optimizer.steps() + 1,
                });
            }
        }
        Ok(())
    }

    /// Writes everything that later steps depend on into a folder.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn save(&self, folder: &Path) -> Result<(), TrainError> {
        if let Some(adapter) = self.adapter()? {
            let base = self.base.file_stem().unwrap_or_default().to_string_lossy();
            adapter.save(&folder.join(ADAPTER), &base)?;
        } else {
            candle_core::safetensors::save(&self.weights(), folder.join(WEIGHTS))?;
        }
        candle_core::safetensors::save(&self.optimizer.tensors(), folder.join(OPTIMIZER))?;
        Ok(())
    }

    /// The variables by name: all weights, where these are trained.
    #[must_use]
    pub fn weights(&self) -> HashMap<String, Tensor> {
        let variables = self.learner.variables().iter();
        variables
            .map(|(name, variable)| (name.clone(), variable.as_tensor().detach()))
            .collect()
    }

    /// Where [`Self::save`] put what was trained.
    #[must_use]
    pub fn saved(folder: &Path) -> Saved {
        let adapter = folder.join(ADAPTER);
        if adapter.exists() {
            Saved::Adapter(adapter)
        } else {
            Saved::Weights(folder.join(WEIGHTS))
        }
    }

    /// Takes up what [`Self::save`] wrote after `steps` steps of the optimizer.
    ///
    /// # Errors
    /// When something is missing, of another shape, or can't be read.
    pub fn restore(&mut self, folder: &Path, steps: u64) -> Result<(), TrainError> {
        let device = Device::Cpu;
        let values = match self.settings.method {
            Method::Full => candle_core::safetensors::load(folder.join(WEIGHTS), &device)?,
            Method::Lora => adapter_tensors(&folder.join(ADAPTER))?,
        };
        self.take_up(folder, &values)?;
        let moments = candle_core::safetensors::load(folder.join(OPTIMIZER), &device)?;
        self.optimizer
            .restore(steps, moments, self.learner.variables())
            .map_err(|message| TrainError::format(&folder.join(OPTIMIZER), message))
    }

    /// Begins with an adapter that was trained before; the optimizer begins anew.
    ///
    /// # Errors
    /// When it can't be read or has another form.
    pub fn begin_from(&mut self, adapter: &Path) -> Result<(), TrainError> {
        let values = adapter_tensors(adapter)?;
        self.take_up(adapter, &values)
    }

    fn take_up(&self, path: &Path, values: &HashMap<String, Tensor>) -> Result<(), TrainError> {
        for (name, variable) in self.learner.variables() {
            let value = values
                .get(name)
                .ok_or_else(|| TrainError::format(path, format!("it lacks `{name}`")))?;
            if value.shape() != variable.shape() {
                let message = format!(
                    "`{name}` has the shape {:?}, here it is {:?}",
                    value.dims(),
                    variable.dims()
                );
                return Err(TrainError::format(path, message));
            }
            variable.set(
                &value
                    .to_device(variable.device())?
                    .to_dtype(variable.dtype())?,
            )?;
        }
        let extra = values
            .keys()
            .find(|name| !self.learner.variables().contains_key(*name));
        match extra {
            None => Ok(()),
            Some(name) => Err(TrainError::format(
                path,
                format!("it has `{name}`, which is not trained here"),
            )),
        }
    }
}

/// The matrices of a PEFT folder, by our names.
fn adapter_tensors(folder: &Path) -> Result<HashMap<String, Tensor>, TrainError> {
    // Checks what can be wrong with one.
    Adapter::load(folder)?;
    let path = folder.join("adapter_model.safetensors");
    fs::metadata(&path).map_err(TrainError::io(&path))?;
    let tensors = candle_core::safetensors::load(&path, &Device::Cpu)?;
    let ours = |name: &str| {
        let name = name.strip_prefix("base_model.model.").unwrap_or(name);
        name.strip_suffix(".weight").unwrap_or(name).to_owned()
    };
    Ok(tensors
        .into_iter()
        .map(|(name, tensor)| (ours(&name), tensor))
        .collect())
}

/// A minibatch's result.
#[derive(Default)]
struct Step {
    log_probabilities: Vec<f32>,
    gradients: BTreeMap<String, Tensor>,
}

/// Compares what sampler and trainer say of a minibatch's tokens, where the sampler tells.
fn parity(minibatch: &[Sequence], found: &[f32]) -> Option<Parity> {
    let mut rest = found;
    let (mut sum, mut largest, mut tokens) = (0.0, 0.0, 0);
    for sequence in minibatch {
        let (own, others) = rest.split_at(sequence.learned());
        rest = others;
        if sequence.log_probabilities.len() != own.len() {
            continue;
        }
        for (ours, theirs) in own.iter().zip(&sequence.log_probabilities) {
            let off = f64::from((ours - theirs).abs());
            sum += off;
            largest = f64::max(largest, off);
            tokens += 1;
        }
    }
    (tokens > 0).then(|| Parity {
        mean: sum / tokens as f64,
        largest,
        tokens,
    })
}
