//! What is kept of a batch of rollouts.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::Trajectory;

/// What is kept. The default is the published rule: all rollouts above the threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SelectSettings {
    /// Rewards above it are kept.
    pub threshold: f64,
    /// At most so many rollouts of an item; all where none.
    pub per_item: Option<usize>,
    /// Of rollouts of an item in which the model wrote the same, one.
    pub unique: bool,
    /// With a cap: the shortest first, in tokens that the model wrote; else in the order of rollouts.
    pub shortest_first: bool,
    /// Items of which a smaller share was solved are left out.
    pub lowest_solve_rate: f64,
    /// Items of which a larger share was solved are left out.
    pub highest_solve_rate: f64,
}

impl Default for SelectSettings {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            per_item: None,
            unique: false,
            shortest_first: false,
            lowest_solve_rate: 0.0,
            highest_solve_rate: 1.0,
        }
    }
}

/// What was kept, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Kept {
    /// Rollouts in the batch.
    pub rollouts: usize,
    /// Those above the threshold.
    pub accepted: usize,
    /// Those that are learned from.
    pub kept: usize,
    /// Items in the batch.
    pub items: usize,
    /// Items of which something is kept.
    pub items_kept: usize,
    /// Items with rollouts above the threshold that were left out for their solve rate.
    pub items_outside: usize,
    /// Accepted rollouts in which the model wrote what it wrote in another of the same item.
    pub duplicates: usize,
    /// Tokens that the model wrote in what is kept.
    pub tokens: usize,
    /// The same for each item of which something is kept: fewest, mean, most.
    pub tokens_per_item: (usize, f64, usize),
}

/// Picks what is learned from.
#[must_use]
pub fn select<'a>(
    trajectories: &'a [Trajectory],
    settings: &SelectSettings,
) -> (Vec<&'a Trajectory>, Kept) {
    let mut by_item: BTreeMap<&str, Vec<&Trajectory>> = BTreeMap::new();
    for trajectory in trajectories {
        by_item
            .entry(&trajectory.item)
            .or_default()
            .push(trajectory);
    }
    let mut found = Kept {
        rollouts: trajectories.len(),
        items: by_item.len(),
        ..Kept::default()
    };
    let mut kept = Vec::new();
    let mut tokens_of = Vec::new();
    for mut rollouts in by_item.into_values() {
        // Episodes end in any order.
        rollouts.sort_by_key(|trajectory| trajectory.rollout);
        let all = rollouts.len() as f64;
        rollouts.retain(|trajectory| trajectory.reward > settings.threshold);
        found.accepted += rollouts.len();
        let mut seen = HashSet::new();
        let before = rollouts.len();
        let unique: Vec<&Trajectory> = rollouts
            .iter()
            .copied()
            .filter(|trajectory| seen.insert(written(trajectory)))
            .collect();
        found.duplicates += before - unique.len();
        let rate = before as f64 / all;
        let wanted = settings.lowest_solve_rate..=settings.highest_solve_rate;
        if !wanted.contains(&rate) {
            found.items_outside += usize::from(before > 0);
            continue;
        }
        if settings.unique {
            rollouts = unique;
        }
        if settings.shortest_first {
            rollouts.sort_by_key(|trajectory| length(trajectory));
        }
        rollouts.truncate(settings.per_item.unwrap_or(usize::MAX));
        if !rollouts.is_empty() {
            tokens_of.push(rollouts.iter().map(|trajectory| length(trajectory)).sum());
        }
        kept.extend(rollouts);
    }
    found.kept = kept.len();
    found.items_kept = tokens_of.len();
    found.tokens = tokens_of.iter().sum();
    found.tokens_per_item = (
        tokens_of.iter().copied().min().unwrap_or(0),
        found.tokens as f64 / tokens_of.len().max(1) as f64,
        tokens_of.iter().copied().max().unwrap_or(0),
    );
    (kept, found)
}

/// What the model wrote, call by call.
fn written(trajectory: &Trajectory) -> Vec<&[u32]> {
    trajectory.calls.iter().map(|call| &*call.sampled).collect()
}

fn length(trajectory: &Trajectory) -> usize {
    trajectory.calls.iter().map(|call| call.sampled.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::tests::trajectory;

    /// Item, rollout, reward, and what the model wrote.
    fn batch() -> Vec<Trajectory> {
        let rows: [(&str, u32, f64, &[u32]); 8] = [
            ("a", 2, 1.0, &[7]),
            ("a", 0, 1.0, &[5, 6, 7]),
            ("a", 1, 1.0, &[5, 6, 7]),
            ("a", 3, 0.0, &[5]),
            ("b", 0, 0.5, &[1]),
            ("b", 1, 0.0, &[2]),
            ("c", 0, 1.0, &[3, 4]),
            ("c", 1, 1.0, &[3, 5]),
        ];
        rows.map(|(item, rollout, reward, sampled)| Trajectory {
            rollout,
            ..trajectory(item, reward, &[(&[1], sampled)])
        })
        .to_vec()
    }

    fn check(settings: &SelectSettings, expected: &[(&str, u32)]) -> Kept {
        let batch = batch();
        let (kept, found) = select(&batch, settings);
        let kept: Vec<(&str, u32)> = kept.iter().map(|t| (&*t.item, t.rollout)).collect();
        assert_eq!(kept, expected);
        assert_eq!(found.kept, kept.len());
        found
    }

    #[test]
    fn the_published_rule_keeps_all_above_a_half() {
        let settings = SelectSettings::default();
        let found = check(
            &settings,
            &[("a", 0), ("a", 1), ("a", 2), ("c", 0), ("c", 1)],
        );
        let expected = Kept {
            rollouts: 8,
            accepted: 5,
            kept: 5,
            items: 3,
            items_kept: 2,
            items_outside: 0,
            duplicates: 1,
            tokens: 11,
            tokens_per_item: (4, 5.5, 7),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_cap_takes_the_first_or_the_shortest() {
        let capped = SelectSettings {
            per_item: Some(1),
            ..SelectSettings::default()
        };
        check(&capped, &[("a", 0), ("c", 0)]);
        let shortest = SelectSettings {
            shortest_first: true,
            ..capped
        };
        check(&shortest, &[("a", 2), ("c", 0)]);
    }

    #[test]
    fn duplicates_and_items_that_are_too_easy_can_be_left_out() {
        let unique = SelectSettings {
            unique: true,
            ..SelectSettings::default()
        };
        check(&unique, &[("a", 0), ("a", 2), ("c", 0), ("c", 1)]);
        let hard = SelectSettings {
            highest_solve_rate: 0.9,
            ..SelectSettings::default()
        };
        let found = check(&hard, &[("a", 0), ("a", 1), ("a", 2)]);
        assert_eq!(found.items_outside, 1);
        let easy = SelectSettings {
            lowest_solve_rate: 0.8,
            ..SelectSettings::default()
        };
        check(&easy, &[("c", 0), ("c", 1)]);
    }
}
