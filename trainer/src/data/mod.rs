//! From trajectories to sequences that are learned, by token id.
//!
//! Every call of the model is a span of sampled ids in its exact context. A call whose context
//! begins with all of an earlier one, what was sampled there included, goes on in its sequence.
//! Only sampled ids carry loss, the one that ended a turn included; what templates, tools and users
//! put between carries none.

mod batch;

pub use batch::{micro_batches, minibatches};

use serde::{Deserialize, Serialize};
use whale_lm::Supervised;

use crate::{ModelCall, TrainError, Trajectory};

/// A sequence that is learned.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// The item that it is of.
    pub item: String,
    /// Which of the item's rollouts.
    pub rollout: u32,
    /// Tokens, and which of them the model sampled.
    pub supervised: Supervised,
    /// What the sampler said of these; empty where it does not tell for each.
    pub log_probabilities: Vec<f32>,
}

/// What was left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Dropped {
    /// Calls whose ids do not fit what the server says that it read and wrote.
    pub drifted: usize,
    /// Calls in which nothing was sampled.
    pub empty: usize,
    /// Calls without a context: nothing says after what their ids came.
    pub without_context: usize,
    /// Calls whose context and reply are longer than a sequence may be.
    pub too_long: usize,
}

impl Dropped {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> usize {
        self.drifted + self.empty + self.without_context + self.too_long
    }

    fn add(&mut self, other: Self) {
        self.drifted += other.drifted;
        self.empty += other.empty;
        self.without_context += other.without_context;
        self.too_long += other.too_long;
    }
}

/// What sequences may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Token ids that there are.
    pub vocabulary: usize,
    /// The longest sequence.
    pub longest: usize,
}

/// The sequences of all trajectories, and what was left out.
///
/// # Errors
/// When a sequence has no supervised token or nothing else, or an id is not in the vocabulary.
pub fn sequences(
    trajectories: &[&Trajectory],
    bounds: Bounds,
) -> Result<(Vec<Sequence>, Dropped), TrainError> {
    let (mut all, mut dropped) = (Vec::new(), Dropped::default());
    for trajectory in trajectories {
        let (sequences, left) = of_one(trajectory, bounds);
        dropped.add(left);
        for sequence in &sequences {
            sequence.check(bounds)?;
        }
        all.extend(sequences);
    }
    Ok((all, dropped))
}

fn of_one(trajectory: &Trajectory, bounds: Bounds) -> (Vec<Sequence>, Dropped) {
    let mut sequences: Vec<Sequence> = Vec::new();
    let mut dropped = Dropped::default();
    for call in &trajectory.calls {
        if has_drifted(call) {
            dropped.drifted += 1;
        } else if call.sampled.is_empty() {
            dropped.empty += 1;
        } else if call.prompt.is_empty() {
            dropped.without_context += 1;
        } else if call.prompt.len() + call.sampled.len() > bounds.longest {
            dropped.too_long += 1;
        } else {
            add(&mut sequences, trajectory, call);
        }
    }
    (sequences, dropped)
}

/// What the server says that it read and wrote is not what was recorded.
fn has_drifted(call: &ModelCall) -> bool {
    let counted = (call.counted.0 as usize, call.counted.1 as usize);
    let probabilities = &call.log_probabilities;
    call.other_text
        || counted != (call.prompt.len(), call.sampled.len())
        || !(probabilities.is_empty() || probabilities.len() == call.sampled.len())
        || probabilities.iter().any(|p| !p.is_finite() || *p > 1e-3)
}

/// Goes on in the longest sequence that the call's context begins with, or begins one.
fn add(sequences: &mut Vec<Sequence>, trajectory: &Trajectory, call: &ModelCall) {
    let begun = sequences
        .iter_mut()
        .filter(|sequence| call.prompt.starts_with(&sequence.supervised.tokens))
        .max_by_key(|sequence| sequence.supervised.tokens.len());
    let sequence = match begun {
        Some(sequence) => sequence,
        None => {
            sequences.push(Sequence {
                item: trajectory.item.clone(),
                rollout: trajectory.rollout,
                supervised: Supervised {
                    tokens: Vec::new(),
                    chosen: Vec::new(),
                },
                log_probabilities: Vec::new(),
            });
            let last = sequences.len() - 1;
            &mut sequences[last]
        }
    };
    // Of a sequence in which one call does not tell, none is compared.
    let told = sequence.log_probabilities.len() == sequence.supervised.chosen.len();
    if told && call.log_probabilities.len() == call.sampled.len() {
        sequence.log_probabilities.extend(&call.log_probabilities);
    } else {
        sequence.log_probabilities.clear();
    }
    let Supervised { tokens, chosen } = &mut sequence.supervised;
    tokens.extend(&call.prompt[tokens.len()..]);
    chosen.extend(tokens.len()..tokens.len() + call.sampled.len());
    tokens.extend(&call.sampled);
}

impl Sequence {
    /// How many tokens are learned.
    #[must_use]
    pub fn learned(&self) -> usize {
        self.supervised.chosen.len()
    }

    /// Refuses what would train on nothing, on everything, or on what is not there.
    ///
    /// # Errors
    /// When the mask or an id can't be right.
    pub fn check(&self, bounds: Bounds) -> Result<(), TrainError> {
        let Supervised { tokens, chosen } = &self.supervised;
        let wrong = |why: String| TrainError::Sequence {
            item: self.item.clone(),
            rollout: self.rollout,
            why,
        };
        if chosen.is_empty() {
            return Err(wrong("none of its tokens is supervised".to_owned()));
        }
        if chosen.len() >= tokens.len() || chosen.first() == Some(&0) {
            return Err(wrong(
                "its first token is supervised: the mask covers the context".to_owned(),
            ));
        }
        if !chosen.is_sorted_by(|a, b| a < b) {
            return Err(wrong("its mask is not in order".to_owned()));
        }
        if let Some(outside) = chosen.iter().find(|position| **position >= tokens.len()) {
            return Err(wrong(format!(
                "its mask names token {outside} of {}",
                tokens.len()
            )));
        }
        match tokens.iter().find(|id| **id as usize >= bounds.vocabulary) {
            Some(id) => Err(wrong(format!(
                "there is no token {id}; the vocabulary has {}",
                bounds.vocabulary
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::tests::trajectory;

    const BOUNDS: Bounds = Bounds {
        vocabulary: 100,
        longest: 20,
    };

    fn check(calls: &[(&[u32], &[u32])], expected: &[(&[u32], &[usize])]) {
        let (found, dropped) = sequences(&[&trajectory("a", 1.0, calls)], BOUNDS).unwrap();
        let found: Vec<(&[u32], &[usize])> = found
            .iter()
            .map(|s| (&*s.supervised.tokens, &*s.supervised.chosen))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(dropped.total(), 0);
    }

    #[test]
    fn calls_that_go_on_share_a_sequence() {
        // The second context holds the first with its reply, then glue.
        check(
            &[(&[1, 2], &[3, 4]), (&[1, 2, 3, 4, 5, 6], &[7])],
            &[(&[1, 2, 3, 4, 5, 6, 7], &[2, 3, 6])],
        );
    }

    #[test]
    fn a_context_that_was_changed_begins_another() {
        // A history that the harness rewrote: what was sampled is learned where it was sampled.
        check(
            &[(&[1, 2], &[3, 4]), (&[1, 2, 9, 4, 5], &[7])],
            &[(&[1, 2, 3, 4], &[2, 3]), (&[1, 2, 9, 4, 5, 7], &[5])],
        );
    }

    #[test]
    fn samples_of_one_prompt_are_apart_and_branches_are_learned_once() {
        check(
            &[
                (&[1], &[2, 3]),
                (&[1], &[2, 4]),
                (&[1, 2, 3, 5], &[6]),
                (&[1, 2, 3, 5], &[7]),
            ],
            &[
                (&[1, 2, 3, 5, 6], &[1, 2, 4]),
                (&[1, 2, 4], &[1, 2]),
                (&[1, 2, 3, 5, 7], &[4]),
            ],
        );
    }

    #[test]
    fn what_can_not_be_learned_is_counted() {
        let mut drifted = trajectory("a", 1.0, &[(&[1, 2], &[3]), (&[5], &[]), (&[], &[3])]);
        drifted.calls[0].counted.0 = 3;
        drifted
            .calls
            .extend(trajectory("a", 1.0, &[(&[1; 20], &[1]), (&[4], &[5])]).calls);
        let mut infinite = trajectory("a", 1.0, &[(&[6], &[7])]).calls;
        infinite[0].log_probabilities[0] = f32::NEG_INFINITY;
        drifted.calls.extend(infinite);
        let (found, dropped) = sequences(&[&drifted], BOUNDS).unwrap();
        assert_eq!(found.len(), 1);
        let expected = Dropped {
            drifted: 2,
            empty: 1,
            without_context: 1,
            too_long: 1,
        };
        assert_eq!(dropped, expected);
    }

    #[test]
    fn a_wrong_mask_is_refused_by_name() {
        let refused = |tokens: &[u32], chosen: &[usize]| {
            let sequence = Sequence {
                item: "a".to_owned(),
                rollout: 3,
                supervised: Supervised {
                    tokens: tokens.to_vec(),
                    chosen: chosen.to_vec(),
                },
                log_probabilities: Vec::new(),
            };
            sequence.check(BOUNDS).unwrap_err().to_string()
        };
        assert!(refused(&[1, 2], &[]).contains("item `a`, rollout 3: none of its tokens"));
        assert!(refused(&[1, 2], &[0, 1]).contains("covers the context"));
        assert!(refused(&[1, 2], &[2]).contains("names token 2 of 2"));
        assert!(refused(&[1, 2, 3], &[2, 1]).contains("not in order"));
        assert!(refused(&[1, 100], &[1]).contains("no token 100"));
    }

    /// A stop token that is also the padding of other programs is learned where it was sampled.
    #[test]
    fn a_stop_token_is_learned_and_the_same_id_in_a_template_is_not() {
        check(
            &[(&[2, 1, 2], &[5, 2]), (&[2, 1, 2, 5, 2, 9, 2], &[6, 2])],
            &[(&[2, 1, 2, 5, 2, 9, 2, 6, 2], &[3, 4, 7, 8])],
        );
    }
}
