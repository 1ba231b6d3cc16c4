//! What is known of a step.

use serde::{Deserialize, Serialize};
use whale_trainer::{Update, data::Dropped, select::Kept};

use super::Moved;

/// A row of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Row {
    /// From 1 on.
    pub step: u64,
    /// Epochs that are over.
    pub epoch: f64,
    /// The mean reward.
    pub reward: f64,
    /// Episodes that failed for no fault of the harness, and count for nothing.
    pub failed: usize,
    /// What was kept.
    pub kept: Kept,
    /// What was left out of what was kept.
    pub dropped: Dropped,
    /// What was learned; of no steps where nothing was kept.
    pub update: Update,
    /// How trainer and sampler moved.
    pub moved: Option<Moved>,
    /// The hash of the adapter that is served from here on.
    pub adapter: Option<String>,
    /// Tokens that the model wrote.
    pub written: usize,
    /// Seconds of the rollouts, the update, and everything else.
    pub seconds: Seconds,
}

/// Where a step's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Seconds {
    /// Rolling out and grading.
    pub rollouts: f64,
    /// Learning.
    pub update: f64,
    /// Selecting, handing over, probing, keeping.
    pub other: f64,
}

impl Row {
    /// What TensorBoard shows.
    pub(super) fn numbers(&self) -> Vec<(&'static str, f64)> {
        let share = self.kept.kept as f64 / self.kept.rollouts.max(1) as f64;
        let mut numbers = vec![
            ("rollouts/reward", self.reward),
            ("rollouts/kept", share),
            ("rollouts/failed", self.failed as f64),
            ("rollouts/tokens", self.written as f64),
            ("seconds/rollouts", self.seconds.rollouts),
            ("seconds/update", self.seconds.update),
            ("seconds/other", self.seconds.other),
        ];
        if self.update.steps > 0 {
            numbers.extend([
                ("train/loss", self.update.loss),
                ("train/gradient", self.update.gradient),
                ("train/rate", self.update.rate),
                ("train/supervised", self.update.supervised as f64),
                ("train/dropped", self.dropped.total() as f64),
            ]);
        }
        numbers.extend(
            self.update
                .parity
                .map(|parity| ("train/parity", parity.mean)),
        );
        numbers.extend(self.moved.map(|moved| ("train/moved", moved.sampler)));
        numbers
    }
}
