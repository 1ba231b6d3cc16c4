//! Whether the sampler moved as the trainer did.
//!
//! An adapter under other names loads and does nothing; a cache may outlive the weights that it was
//! computed with. So some prompts are asked before and after each update, of both: what the sampler's
//! log-probabilities moved by must be what the trainer's moved by.

use serde::{Deserialize, Serialize};

use super::WeightsError;

/// How both moved, as root mean squares over prompts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Moved {
    /// The sampler.
    pub sampler: f64,
    /// The trainer, where it is this program's.
    pub trainer: Option<Against>,
    /// Prompts that were asked.
    pub prompts: usize,
}

/// The trainer's movement, and the sampler's against it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Against {
    /// How far it moved.
    pub moved: f64,
    /// By how much the sampler moves where the trainer moves by 1, by least squares: 1 where both
    /// have the same weights, 0 where the sampler's are old.
    pub slope: f64,
    /// How far both are apart where nothing moves: one computes in fewer bits, for one.
    pub apart: f64,
}

/// What both said of the same prompts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Said {
    /// The prompts.
    pub prompts: Vec<Vec<u32>>,
    /// The trainer.
    pub trainer: Vec<f32>,
    /// The sampler.
    pub sampler: Vec<f32>,
}

/// A slope that is as far from 1 says that the weights are not the same.
const SLOPES: std::ops::RangeInclusive<f64> = 0.5..=1.5;

impl Moved {
    /// From what both said before and after.
    pub(super) fn between(before: &Said, after: &Said) -> Self {
        let moves = |before: &[f32], after: &[f32]| -> Vec<f64> {
            let pairs = before.iter().zip(after);
            pairs.map(|(a, b)| f64::from(b - a)).collect()
        };
        let root = |numbers: &[f64]| {
            let squares: f64 = numbers.iter().map(|x| x * x).sum();
            (squares / numbers.len().max(1) as f64).sqrt()
        };
        let sampler = moves(&before.sampler, &after.sampler);
        let trainer = moves(&before.trainer, &after.trainer);
        let along: f64 = trainer.iter().zip(&sampler).map(|(t, s)| t * s).sum();
        let squares: f64 = trainer.iter().map(|t| t * t).sum();
        Self {
            sampler: root(&sampler),
            trainer: (!trainer.is_empty()).then(|| Against {
                moved: root(&trainer),
                slope: along / squares,
                apart: root(&moves(&before.trainer, &before.sampler)),
            }),
            prompts: before.prompts.len(),
        }
    }

    /// Refuses a sampler that did not move as the trainer did. A movement within what both are apart
    /// anyhow proves no more than that there is one.
    pub(super) fn check(self) -> Result<Self, WeightsError> {
        let refused = |why| Err(WeightsError::NotServed { moved: self, why });
        // What is no number did not move.
        let has_moved = |by: f64| by.is_finite() && by > 0.0;
        if let Some(trainer) = self.trainer
            && !has_moved(trainer.moved)
        {
            return refused("the trainer's own log-probabilities did not move");
        }
        if !has_moved(self.sampler) {
            return refused("the sampler's did not move at all: it serves the old weights");
        }
        match self.trainer {
            Some(trainer) if trainer.moved > trainer.apart && !SLOPES.contains(&trainer.slope) => {
                refused("the sampler's moved otherwise: it serves other weights")
            }
            _ => Ok(self),
        }
    }

    /// The trainer's part, for a message.
    pub(super) fn against(&self) -> String {
        self.trainer.map_or_else(String::new, |trainer| {
            format!(
                ", the trainer's by {:.5}, with a slope of {:.2}",
                trainer.moved, trainer.slope
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(trainer: &[f32], sampler: &[f32]) -> Said {
        Said {
            prompts: vec![vec![1]; sampler.len()],
            trainer: trainer.to_vec(),
            sampler: sampler.to_vec(),
        }
    }

    #[test]
    fn a_sampler_with_old_or_other_weights_is_found_out() {
        let before = said(&[-1.0, -2.0, -0.5], &[-1.01, -1.99, -0.5]);
        let refused = |after: Said| Moved::between(&before, &after).check().is_err();
        assert!(!refused(said(&[-0.8, -2.3, -0.4], &[-0.82, -2.28, -0.4])));
        // Old weights; others; none at all.
        assert!(refused(said(&[-0.8, -2.3, -0.4], &before.sampler)));
        assert!(refused(said(&[-0.8, -2.3, -0.4], &[-1.2, -1.7, -0.6])));
        assert!(refused(said(&[-0.8, -2.3, -0.4], &[f32::NAN, -2.3, -0.4])));
        assert!(refused(said(&before.trainer, &[-0.82, -2.28, -0.4])));
        // A trainer that is a command says nothing.
        let silent = said(&[], &before.sampler);
        let found = Moved::between(&silent, &said(&[], &[-0.9, -2.0, -0.5]));
        assert!(found.check().is_ok_and(|moved| moved.trainer.is_none()));
        assert!(Moved::between(&silent, &silent).check().is_err());
        // Too small a movement to say more than that there is one.
        assert!(!refused(said(
            &[-1.0001, -2.0, -0.5],
            &[-1.011, -1.99, -0.5]
        )));
    }
}
