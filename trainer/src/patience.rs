//! When a weight phase has stopped to pay.
//!
//! Source: Kim et al.: WHALE (2026), the adaptive schedule: the mean reward over a sliding window has
//! set no new best of the phase for as many steps as patience lasts.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The rule's settings, in rollout steps. The published rule has 0.2 epochs for all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PatienceSettings {
    /// Steps over which rewards are averaged.
    pub window: usize,
    /// Steps without a new best after which the phase is over.
    pub patience: usize,
    /// Steps that are taken in any case.
    pub minimum: usize,
}

/// How the rewards of a phase went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Patience {
    settings: PatienceSettings,
    /// The last rewards.
    recent: VecDeque<f64>,
    best: Option<f64>,
    /// Steps since the best.
    since: usize,
    steps: usize,
}

impl Patience {
    /// Of a phase that begins.
    #[must_use]
    pub fn new(settings: PatienceSettings) -> Self {
        Self {
            settings,
            recent: VecDeque::new(),
            best: None,
            since: 0,
            steps: 0,
        }
    }

    /// Takes a step's mean reward; a window counts once it is full.
    pub fn add(&mut self, reward: f64) {
        self.steps += 1;
        self.recent.push_back(reward);
        if self.recent.len() > self.settings.window.max(1) {
            self.recent.pop_front();
        }
        if self.recent.len() < self.settings.window.max(1) {
            return;
        }
        let mean = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
        if self.best.is_none_or(|best| mean > best) {
            self.best = Some(mean);
            self.since = 0;
        } else {
            self.since += 1;
        }
    }

    /// Whether the phase should end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.steps >= self.settings.minimum && self.since >= self.settings.patience.max(1)
    }

    /// The highest mean of a window.
    #[must_use]
    pub fn best(&self) -> Option<f64> {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many steps it is over.
    fn check(settings: (usize, usize, usize), rewards: &[f64], expected: Option<usize>) {
        let (window, patience, minimum) = settings;
        let mut rule = Patience::new(PatienceSettings {
            window,
            patience,
            minimum,
        });
        let over = rewards.iter().position(|reward| {
            rule.add(*reward);
            rule.is_over()
        });
        assert_eq!(
            over.map(|index| index + 1),
            expected,
            "{settings:?} {rewards:?}"
        );
    }

    #[test]
    fn it_ends_after_as_many_steps_without_a_new_best() {
        check((1, 2, 0), &[0.1, 0.2, 0.2, 0.2], Some(4));
        check((1, 2, 0), &[0.1, 0.2, 0.1, 0.3, 0.3], None);
        check((1, 2, 6), &[0.3, 0.2, 0.2, 0.2, 0.2, 0.2], Some(6));
        // Windows of two: 0.2, 0.2, 0.15, 0.1.
        check((2, 3, 0), &[0.1, 0.3, 0.1, 0.2, 0.0], Some(5));
        check((2, 1, 0), &[0.5], None);
    }
}
