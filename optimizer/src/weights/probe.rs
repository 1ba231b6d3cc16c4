//! Whether the sampler moved as the trainer did.
//!
//! An adapter under other names loads and does nothing; a cache may outlive the weights that it was
//! computed with. So both are asked for the log-probabilities of the same tokens before and after each
//! update: what the sampler's moved by must be what the trainer's moved by. They are tokens that the
//! model sampled; a template's are the same in every text, and some so unlikely that one of them
//! outweighs all others.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use whale_lm::Supervised;
use whale_trainer::data::Sequence;

use super::WeightsError;

/// How both moved, as root mean squares over tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Moved {
    /// The sampler.
    pub sampler: f64,
    /// The trainer, where it is this program's.
    pub trainer: Option<Against>,
    /// Tokens that were asked for.
    pub tokens: usize,
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
    /// The slope's standard error: a sampler that computes in fewer bits moves with some noise.
    pub error: f64,
}

/// A text, and the places of its tokens that are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Text {
    /// The token ids.
    pub tokens: Vec<u32>,
    /// Not the first.
    pub places: Vec<usize>,
}

/// What both said of the same texts, token by token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Said {
    /// The texts.
    pub texts: Vec<Text>,
    /// The trainer; nothing where it is a command.
    pub trainer: Vec<f32>,
    /// The sampler.
    pub sampler: Vec<f32>,
}

/// A slope that is surely outside says that the weights are not the same.
const SLOPES: (f64, f64) = (0.5, 1.5);
/// Standard errors that make it sure.
const SURE: f64 = 4.0;

/// Texts of a probe.
const TEXTS: usize = 8;
/// The longest of them, in tokens.
const LONGEST: usize = 512;

/// Some sequences of different items, where there are enough.
pub(super) fn texts(learned: &[Sequence]) -> Vec<Text> {
    let mut items = HashSet::new();
    let (fresh, others): (Vec<_>, Vec<_>) = learned
        .iter()
        .partition(|sequence| items.insert(sequence.item.as_str()));
    let cut = |sequence: &Sequence| {
        let Supervised { tokens, chosen } = &sequence.supervised;
        let end = tokens.len().min(LONGEST);
        let mut places: Vec<usize> = chosen.iter().copied().filter(|at| *at < end).collect();
        if places.is_empty() {
            // All of its context is longer: then the last tokens of what is left of it.
            places = (end.saturating_sub(TEXTS).max(1)..end).collect();
        }
        Text {
            tokens: tokens[..end].to_vec(),
            places,
        }
    };
    fresh
        .into_iter()
        .chain(others)
        .take(TEXTS)
        .map(cut)
        .collect()
}

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
        let against = || {
            let along: f64 = trainer.iter().zip(&sampler).map(|(t, s)| t * s).sum();
            let squares: f64 = trainer.iter().map(|t| t * t).sum();
            let slope = along / squares;
            let rest = trainer.iter().zip(&sampler).map(|(t, s)| s - slope * t);
            let rest: f64 = rest.map(|off| off * off).sum();
            let degrees = trainer.len().saturating_sub(1).max(1) as f64;
            Against {
                moved: root(&trainer),
                slope,
                error: (rest / degrees / squares).sqrt(),
            }
        };
        Self {
            sampler: root(&sampler),
            trainer: (!trainer.is_empty()).then(against),
            tokens: sampler.len(),
        }
    }

    /// Refuses a sampler that did not move as the trainer did.
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
            Some(Against { slope, error, .. })
                if slope + SURE * error < SLOPES.0 || slope - SURE * error > SLOPES.1 =>
            {
                refused("the sampler's moved otherwise: it serves other weights")
            }
            _ => Ok(self),
        }
    }

    /// The trainer's part, for a message.
    pub(super) fn against(&self) -> String {
        self.trainer.map_or_else(String::new, |trainer| {
            format!(
                ", the trainer's by {:.5}, with a slope of {:.2} ± {:.2}",
                trainer.moved, trainer.slope, trainer.error
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(trainer: &[f32], sampler: &[f32]) -> Said {
        Said {
            texts: Vec::new(),
            trainer: trainer.to_vec(),
            sampler: sampler.to_vec(),
        }
    }

    /// What is said of many tokens after a movement, by a sampler that is off by some noise, another
    /// one each time.
    fn after(by: f32, noise: f32) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(u64::from(by.to_bits()));
        (0..200)
            .map(|i| -1.0 + by * (i as f32).sin() + noise * (random.f32() - 0.5))
            .collect()
    }

    #[test]
    fn a_sampler_with_old_or_other_weights_is_found_out() {
        for noise in [0.0, 0.1] {
            let before = said(&after(0.0, 0.0), &after(0.0, noise));
            let slope = |moved: &Moved| moved.trainer.unwrap().slope;
            let refused = |after: &Said| Moved::between(&before, after).check().is_err();
            let good = said(&after(0.3, 0.0), &after(0.3, noise));
            assert!((slope(&Moved::between(&before, &good)) - 1.0).abs() < 0.3);
            assert!(!refused(&good));
            // Old weights, with and without other noise; others; none at all.
            assert!(refused(&said(&good.trainer, &before.sampler)));
            assert!(refused(&said(&good.trainer, &after(0.001, noise))));
            assert!(refused(&said(&good.trainer, &after(-0.3, noise))));
            assert!(refused(&said(&good.trainer, &after(f32::NAN, noise))));
            assert!(refused(&said(&before.trainer, &good.sampler)));
        }
        // Too small a movement for the noise to say more than that there is one.
        let before = said(&after(0.0, 0.0), &after(0.0, 0.1));
        let small = said(&after(1e-4, 0.0), &after(1e-4, 0.1));
        assert!(Moved::between(&before, &small).check().is_ok());
    }

    #[test]
    fn a_trainer_that_is_a_command_says_nothing() {
        let before = said(&[], &after(0.0, 0.0));
        let moved = Moved::between(&before, &said(&[], &after(0.1, 0.0)));
        assert!(moved.check().is_ok_and(|moved| moved.trainer.is_none()));
        assert!(Moved::between(&before, &before).check().is_err());
    }
}
