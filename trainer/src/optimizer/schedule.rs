//! How the rate of steps changes.

use serde::{Deserialize, Serialize};

/// What the rate does after its rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// It stays.
    #[default]
    Constant,
    /// It falls to 0 along a line.
    Linear,
    /// It falls to 0 along half a cosine.
    Cosine,
}

impl Schedule {
    /// What the highest rate is multiplied by: in step `step` of the optimizer, from 0 on, of which
    /// the first `warm_up` rise; `progress` in [0, 1] says how much of the phase is over.
    #[must_use]
    pub fn factor(self, step: u64, warm_up: u64, progress: f64) -> f64 {
        let rise = if warm_up == 0 {
            1.0
        } else {
            ((step + 1) as f64 / warm_up as f64).min(1.0)
        };
        let progress = progress.clamp(0.0, 1.0);
        let fall = match self {
            Self::Constant => 1.0,
            Self::Linear => 1.0 - progress,
            Self::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
        };
        rise * fall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_and_fall() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(Schedule::Constant.factor(0, 4, 0.0), 0.25);
        near(Schedule::Constant.factor(9, 4, 1.0), 1.0);
        near(Schedule::Linear.factor(9, 0, 0.25), 0.75);
        near(Schedule::Cosine.factor(9, 0, 0.5), 0.5);
        near(Schedule::Cosine.factor(9, 0, 2.0), 0.0);
    }
}
