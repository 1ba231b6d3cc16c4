//! What an evaluation comes to.

use std::collections::BTreeMap;

use serde::Serialize;
use whale_tasks::statistics::{Estimate, Pair, Scores, mean_at_k};

use super::{Entry, Header};

/// Confidence of all intervals.
pub const CONFIDENCE: f64 = 0.95;
/// A larger share of failures that are not the harness's makes an evaluation worthless.
const TOLERATED: f64 = 0.02;
/// Items that are listed.
const LISTED: usize = 5;

/// What an evaluation comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// What was evaluated.
    #[serde(flatten)]
    pub header: Header,
    /// mean@k; none without a scored episode.
    pub mean: Option<Estimate>,
    /// Episodes that are scored.
    pub scored: usize,
    /// Those that failed for no fault of the harness and are not.
    pub failed: usize,
    /// Whether there are too many of those.
    pub void: bool,
    /// Episodes by what they came to.
    pub outcomes: BTreeMap<String, usize>,
    /// Means over episodes, of those that have them, by name.
    pub diagnostics: BTreeMap<String, f64>,
    /// Sums over episodes, by the name of the limit.
    pub used: BTreeMap<String, u64>,
    /// The episodes that took longest.
    pub slowest: Vec<Slow>,
    /// Some episodes that failed or that ended in an error of the harness, and how.
    pub errors: Vec<(String, u32, String)>,
}

/// A slow episode.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Slow {
    /// The item.
    pub item: String,
    /// Which of its rollouts.
    pub rollout: u32,
    /// Milliseconds.
    pub took_ms: u64,
}

impl Summary {
    /// Sums up.
    #[must_use]
    pub fn new(header: Header, entries: &[Entry]) -> Self {
        let scored = entries.iter().filter(|entry| entry.is_scored()).count();
        let failed = entries.len() - scored;
        let mut outcomes = BTreeMap::new();
        let mut signals: BTreeMap<String, (f64, usize)> = BTreeMap::new();
        let mut used: BTreeMap<String, u64> = BTreeMap::new();
        let mut errors = Vec::new();
        for entry in entries {
            let (kind, why) = kind(entry);
            *outcomes.entry(kind.to_owned()).or_default() += 1;
            if let Some(why) = why
                && errors.len() < LISTED
            {
                errors.push((entry.item.clone(), entry.rollout, why));
            }
            for (name, amount) in &entry.used {
                let sum = used.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*amount);
            }
            for (name, value) in entry.signals.iter().filter(|_| entry.is_scored()) {
                let (sum, count) = signals.entry(name.clone()).or_default();
                *sum += value;
                *count += 1;
            }
        }
        let mut slowest: Vec<&Entry> = entries.iter().collect();
        slowest.sort_by_key(|entry| std::cmp::Reverse(entry.took_ms));
        let slowest = slowest.into_iter().take(LISTED).map(|entry| Slow {
            item: entry.item.clone(),
            rollout: entry.rollout,
            took_ms: entry.took_ms,
        });
        Self {
            mean: mean_at_k(&scores(entries), CONFIDENCE),
            scored,
            failed,
            void: failed as f64 > TOLERATED * entries.len() as f64,
            outcomes,
            diagnostics: signals
                .into_iter()
                .map(|(name, (sum, count))| (name, sum / count as f64))
                .collect(),
            used,
            slowest: slowest.collect(),
            errors,
            header,
        }
    }
}

fn kind(entry: &Entry) -> (&'static str, Option<String>) {
    use whale_runtime::episode::Outcome;

    match &entry.outcome {
        Outcome::Answered { .. } => ("answered", None),
        Outcome::GaveUp { message } => ("gave up", Some(format!("gave up: {message}"))),
        Outcome::Limit { hit } => ("limit", Some(format!("limit: {hit}"))),
        Outcome::Trapped { trap } => ("trapped", Some(format!("trapped: {trap}"))),
        Outcome::KilledWorker { how } => ("killed its worker", Some(format!("killed: {how}"))),
        Outcome::Infrastructure { message } => ("failed", Some(format!("failed: {message}"))),
    }
}

/// The scores of items, by id, in the order of the ids.
fn by_item(entries: &[Entry]) -> BTreeMap<&str, Scores> {
    let mut items: BTreeMap<&str, Scores> = BTreeMap::new();
    let mut sorted: Vec<&Entry> = entries.iter().filter(|entry| entry.is_scored()).collect();
    sorted.sort_by_key(|entry| entry.rollout);
    for entry in sorted {
        let scores = items.entry(&entry.item).or_insert_with(|| Scores {
            cluster: entry.cluster.clone(),
            rollouts: Vec::new(),
        });
        scores.rollouts.push(entry.score());
    }
    items
}

/// The scores of items that have a scored episode.
#[must_use]
pub fn scores(entries: &[Entry]) -> Vec<Scores> {
    by_item(entries).into_values().collect()
}

/// Items that both have scored, paired.
#[must_use]
pub fn pairs(a: &[Entry], b: &[Entry]) -> Vec<Pair> {
    let (a, b) = (by_item(a), by_item(b));
    a.iter()
        .filter_map(|(item, a)| Some(Pair::of(a, b.get(item)?)))
        .collect()
}
