//! What can be set about training.

use serde::{Deserialize, Serialize};
use whale_lm::{Lora, Trained};

use crate::{TrainError, optimizer::Schedule};

/// Who takes the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// This program.
    #[default]
    Local,
    /// A command of the user's.
    Command,
}

/// What is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// An adapter of low rank.
    #[default]
    Lora,
    /// All weights.
    Full,
}

/// In which numbers the forward and backward passes compute. What is trained is kept in 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// The upper 16 bits of these: for accelerators.
    Bf16,
}

/// When a layer is computed again on the way back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recompute {
    /// Where a sequence alone is longer than four token budgets.
    #[default]
    Auto,
    /// Always: a third more time for a small part of the memory.
    Always,
    /// Never.
    Never,
}

/// How a model is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Settings {
    /// Who takes the steps.
    pub backend: Backend,
    /// With the backend `command`: what is run; the path of a request is its last argument.
    pub command: Vec<String>,
    /// Seconds that the command may take for one update.
    pub command_seconds: u64,
    /// What is trained.
    pub method: Method,
    /// An adapter's inner width.
    pub rank: usize,
    /// An adapter's changes are multiplied by `alpha / rank`.
    pub alpha: f64,
    /// The share of numbers that an adapter does not see in training.
    pub dropout: f64,
    /// The last names of the matrices that an adapter changes.
    pub targets: Vec<String>,
    /// The highest rate of a step.
    pub learning_rate: f64,
    /// How the rate changes over a phase.
    pub schedule: Schedule,
    /// Steps of the optimizer over which the rate rises from 0.
    pub warm_up: u64,
    /// How much of the moments is kept in a step.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled from the gradient.
    pub weight_decay: f64,
    /// The longest that all gradients together may be.
    pub clip: f64,
    /// Sequences in a step of the optimizer.
    pub minibatch: usize,
    /// Tokens in one pass through the model. On a processor, more make it no faster: what a pass keeps
    /// then leaves the caches.
    pub token_budget: usize,
    /// The longest sequence; longer ones are left out and counted.
    pub longest: usize,
    /// In which numbers passes compute.
    pub precision: Precision,
    /// When a layer is computed again on the way back.
    pub recompute: Recompute,
    /// How far sampler and trainer may be apart, in the mean over kept tokens' log-probabilities.
    pub parity: f64,
}

impl Default for Settings {
    fn default() -> Self {
        let targets = [
            "q_proj",
            "k_proj",
            "v_proj",
            "o_proj",
            "gate_proj",
            "up_proj",
            "down_proj",
        ];
        Self {
            backend: Backend::Local,
            command: Vec::new(),
            command_seconds: 24 * 3600,
            method: Method::Lora,
            rank: 16,
            alpha: 32.0,
            dropout: 0.0,
            targets: targets.map(str::to_owned).to_vec(),
            learning_rate: 1e-4,
            schedule: Schedule::Constant,
            warm_up: 0,
            betas: (0.9, 0.999),
            epsilon: 1e-8,
            weight_decay: 0.0,
            clip: 1.0,
            minibatch: 64,
            token_budget: 1024,
            longest: 8192,
            precision: Precision::F32,
            recompute: Recompute::Auto,
            parity: 0.1,
        }
    }
}

impl Settings {
    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// When a setting is out of its bounds.
    pub fn check(&self) -> Result<(), TrainError> {
        let number = |name, value: f64, good: bool, bounds| {
            if good {
                Ok(())
            } else {
                Err(TrainError::Setting {
                    name,
                    value: value.to_string(),
                    bounds,
                })
            }
        };
        let share = |x: f64| (0.0..1.0).contains(&x);
        let positive = |x: f64| x.is_finite() && x > 0.0;
        let rate = self.learning_rate;
        number(
            "learning-rate",
            rate,
            positive(rate) && rate <= 1.0,
            "above 0, at most 1",
        )?;
        number(
            "dropout",
            self.dropout,
            share(self.dropout),
            "from 0 to below 1",
        )?;
        number("alpha", self.alpha, positive(self.alpha), "above 0")?;
        number("epsilon", self.epsilon, positive(self.epsilon), "above 0")?;
        number("clip", self.clip, positive(self.clip), "above 0")?;
        number("parity", self.parity, positive(self.parity), "above 0")?;
        let decay = self.weight_decay;
        number(
            "weight-decay",
            decay,
            (0.0..=1.0).contains(&decay),
            "from 0 to 1",
        )?;
        for beta in [self.betas.0, self.betas.1] {
            number("betas", beta, share(beta), "from 0 to below 1, both")?;
        }
        let counts = [
            ("rank", self.rank, 1024),
            ("minibatch", self.minibatch, 1 << 20),
            ("token-budget", self.token_budget, 1 << 24),
            ("longest", self.longest, 1 << 24),
        ];
        for (name, value, most) in counts {
            number(
                name,
                value as f64,
                (1..=most).contains(&value),
                "at least 1, and not beyond use",
            )?;
        }
        let command = self.backend == Backend::Command;
        if command == self.command.is_empty() {
            return Err(TrainError::Setting {
                name: "command",
                value: format!("{:?}", self.command),
                bounds: "a program with its arguments where `backend` is `command`, else left out",
            });
        }
        if command && self.method == Method::Full {
            return Err(TrainError::Setting {
                name: "method",
                value: "full".to_owned(),
                bounds: "`lora` where `backend` is `command`: an adapter is taken back",
            });
        }
        Ok(())
    }

    /// What a learner's variables are.
    pub(crate) fn trained(&self, seed: u64) -> Trained {
        match self.method {
            Method::Full => Trained::Weights,
            Method::Lora => Trained::Adapter(Lora {
                rank: self.rank,
                alpha: self.alpha,
                targets: self.targets.clone(),
                seed,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_bounds_are_named() {
        Settings::default().check().unwrap();
        let refused = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert!(refused(|s| s.learning_rate = 0.0).contains("`learning-rate` is 0"));
        assert!(refused(|s| s.learning_rate = f64::NAN).contains("`learning-rate` is NaN"));
        assert!(refused(|s| s.dropout = 1.0).contains("`dropout`"));
        assert!(refused(|s| s.betas.1 = 1.0).contains("`betas`"));
        assert!(refused(|s| s.rank = 0).contains("`rank` is 0"));
        assert!(refused(|s| s.backend = Backend::Command).contains("`command`"));
        assert!(refused(|s| s.command = vec!["x".to_owned()]).contains("`command`"));
    }
}
