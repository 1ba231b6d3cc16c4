//! What a weight phase is, in a file: `whale.toml`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use whale_trainer::{PatienceSettings, select::SelectSettings};

/// The settings of a run. Unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RunSettings {
    /// A folder with `task.toml`, or the name of a task.
    pub task: String,
    /// The harness: a module, or a harness's folder.
    pub harness: String,
    /// The model: `local:NAME-OR-FILE`, or `openai:URL#NAME` with `[hand-over]`.
    pub model: String,
    /// Fixes everything that is random.
    #[serde(default)]
    pub seed: u64,
    /// How long it lasts.
    #[serde(default)]
    pub phase: PhaseSettings,
    /// How items are rolled out.
    #[serde(default)]
    pub rollouts: RolloutSettings,
    /// What is kept of a step's rollouts.
    #[serde(default)]
    pub select: SelectSettings,
    /// How the model is trained.
    #[serde(default)]
    pub train: whale_trainer::Settings,
    /// Where a server finds new adapters.
    #[serde(default)]
    pub hand_over: Option<HandOverSettings>,
}

/// How long a phase lasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct PhaseSettings {
    /// Passes over the items of the split `weights`.
    pub epochs: f64,
    /// The published rule for an early end, if it should end early.
    pub patience: Option<PatienceSettings>,
    /// Checkpoints that stay.
    pub checkpoints: usize,
}

impl Default for PhaseSettings {
    fn default() -> Self {
        Self {
            epochs: 1.0,
            patience: None,
            checkpoints: 3,
        }
    }
}

/// How items are rolled out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RolloutSettings {
    /// Items in a step.
    pub prompts: usize,
    /// Rollouts of each item.
    pub samples: u32,
    /// Episodes at once.
    pub jobs: usize,
    /// Weights are widened to 32 bits for rollouts, too: sampler and trainer then agree to the last
    /// digits, and rollouts are slower.
    pub f32: bool,
    /// Limits of the episodes; `whale-host limits` lists them.
    pub limits: BTreeMap<String, String>,
}

impl Default for RolloutSettings {
    fn default() -> Self {
        Self {
            prompts: 256,
            samples: 8,
            jobs: 64,
            f32: false,
            limits: BTreeMap::new(),
        }
    }
}

/// How a server gets new adapters, through `v1/load_lora_adapter`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HandOverSettings {
    /// The model that is trained, the same as the server's: `local:NAME-OR-FILE`.
    pub base: String,
    /// A folder that this program and the server see; adapters are written into it.
    pub folder: std::path::PathBuf,
    /// What the server calls that folder; empty where it takes paths relative to it.
    pub server_folder: String,
}

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is {value}; it must be {bounds}")]
pub struct WrongSetting {
    /// The setting.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// What it may be.
    pub bounds: &'static str,
}

impl RunSettings {
    /// Refuses what makes no sense; `[train]` has a check of its own.
    ///
    /// # Errors
    /// When a setting is out of its bounds.
    pub fn check(&self) -> Result<(), WrongSetting> {
        let within = |name, value: f64, bounds: &'static str, good: bool| {
            if good {
                return Ok(());
            }
            let value = value.to_string();
            Err(WrongSetting {
                name,
                value,
                bounds,
            })
        };
        let epochs = self.phase.epochs;
        let good = epochs > 0.0 && epochs <= 1e6;
        within("phase.epochs", epochs, "above 0, at most a million", good)?;
        let rollouts = &self.rollouts;
        let counts = [
            ("rollouts.prompts", rollouts.prompts as f64),
            ("rollouts.samples", f64::from(rollouts.samples)),
            ("rollouts.jobs", rollouts.jobs as f64),
        ];
        for (name, value) in counts {
            let good = (1.0..=1e6).contains(&value);
            within(name, value, "at least 1, at most a million", good)?;
        }
        let threshold = self.select.threshold;
        let good = (0.0..1.0).contains(&threshold);
        within("select.threshold", threshold, "from 0 to below 1", good)?;
        let rates = (
            self.select.lowest_solve_rate,
            self.select.highest_solve_rate,
        );
        let good = (0.0..=1.0).contains(&rates.0) && (rates.0..=1.0).contains(&rates.1);
        let bounds = "in [0, 1], with `highest-solve-rate` not below it";
        within("select.lowest-solve-rate", rates.0, bounds, good)?;
        if self.model.starts_with("openai:") == self.hand_over.is_none() {
            return Err(WrongSetting {
                name: "hand-over",
                value: if self.hand_over.is_some() {
                    "set"
                } else {
                    "missing"
                }
                .to_owned(),
                bounds: "set where the model is a server's, and nowhere else",
            });
        }
        Ok(())
    }
}
