//! Splits: made once, by cluster, from a seed.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{SplitSettings, TaskError};

/// What items are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// To train on.
    Weights,
    /// To search harnesses on; a proposer sees everything of it.
    Search,
    /// To confirm a choice on; never shown.
    Confirm,
    /// To report; each opening is recorded.
    Test,
}

impl Split {
    /// All of them, in words.
    pub const NAMES: &'static str = "`weights`, `search`, `confirm` and `test`";
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Weights, Self::Search, Self::Confirm, Self::Test];

    /// The split of this name; `train` is another name for `weights`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name.trim() {
            "weights" | "train" => Some(Self::Weights),
            "search" => Some(Self::Search),
            "confirm" | "validation" => Some(Self::Confirm),
            "test" => Some(Self::Test),
            _ => None,
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Weights => "weights",
            Self::Search => "search",
            Self::Confirm => "confirm",
            Self::Test => "test",
        })
    }
}

/// Shares clusters out: in an order that the seed and their names fix, first to test, then to
/// confirm, then to search; the rest trains. `given` are those whose split the data gives. Items
/// past the bound of `weights` belong nowhere.
pub(super) fn assign(
    clusters: &BTreeMap<String, usize>,
    given: &HashMap<String, Split>,
    settings: &SplitSettings,
) -> Result<HashMap<String, Split>, TaskError> {
    let mut order: Vec<(Vec<u8>, &str, usize)> = clusters
        .iter()
        .filter(|(cluster, _)| !given.contains_key(*cluster))
        .map(|(cluster, items)| {
            let mut hasher = Sha256::new();
            hasher.update(settings.seed.to_le_bytes());
            hasher.update(cluster);
            (hasher.finalize().to_vec(), cluster.as_str(), *items)
        })
        .collect();
    order.sort();
    let mut sizes: BTreeMap<Split, usize> = BTreeMap::new();
    for (cluster, split) in given {
        *sizes.entry(*split).or_default() += clusters.get(cluster).copied().unwrap_or_default();
    }
    let wanted = [
        (Split::Test, settings.test),
        (Split::Confirm, settings.confirm),
        (Split::Search, settings.search),
        (Split::Weights, settings.weights.unwrap_or(usize::MAX)),
    ];
    let mut assigned = given.clone();
    for (_, cluster, items) in order {
        let next = wanted
            .iter()
            .find(|(split, wanted)| sizes.get(split).copied().unwrap_or_default() < *wanted);
        if let Some((split, _)) = next {
            *sizes.entry(*split).or_default() += items;
            assigned.insert(cluster.to_owned(), *split);
        }
    }
    for (split, wanted) in wanted.into_iter().take(3) {
        let found = sizes.get(&split).copied().unwrap_or_default();
        // A split that the data gives has the size that it has.
        if found < wanted && !given.values().any(|given| *given == split) {
            return Err(TaskError::TooFew {
                split,
                found,
                wanted,
            });
        }
    }
    Ok(assigned)
}
