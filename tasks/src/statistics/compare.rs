//! Two harnesses, or two adapters, on the same items.

use std::collections::BTreeMap;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF as _};

use super::{Interval, Scores, clustered_error, residuals};

/// Draws of the bootstrap.
const DRAWS: usize = 10_000;

/// One item, rolled by both.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Items with the same cluster are not independent.
    pub cluster: String,
    /// The first's mean over rollouts.
    pub a: f64,
    /// The second's.
    pub b: f64,
}

impl Pair {
    /// An item's rollouts under both.
    #[must_use]
    pub fn of(a: &Scores, b: &Scores) -> Self {
        Self {
            cluster: a.cluster.clone(),
            a: a.mean(),
            b: b.mean(),
        }
    }
}

/// On how many items the second did better, worse, and the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Items on which the second scored higher.
    pub wins: usize,
    /// Lower.
    pub losses: usize,
    /// The same.
    pub ties: usize,
}

/// How much better the second is than the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Comparison {
    /// The mean over items of the second's score less the first's.
    pub difference: f64,
    /// Over clusters.
    pub standard_error: f64,
    /// Of a bootstrap over clusters.
    pub interval: Interval,
    /// Two-sided. Exact McNemar's where every item is its own cluster and has one rollout of
    /// either; else the bootstrap's.
    pub p: f64,
    /// Which test gave `p`.
    pub test: &'static str,
    /// Items by who did better.
    pub counts: Counts,
    /// How many items.
    pub items: usize,
    /// How many clusters they come in.
    pub clusters: usize,
}

/// Compares by item. The seed is the bootstrap's. `None` without items.
#[must_use]
pub fn compare(pairs: &[Pair], confidence: f64, seed: u64) -> Option<Comparison> {
    if pairs.is_empty() {
        return None;
    }
    let items = pairs.len();
    let difference = pairs.iter().map(|pair| pair.b - pair.a).sum::<f64>() / items as f64;
    let differences = pairs
        .iter()
        .map(|pair| (pair.cluster.as_str(), pair.b - pair.a));
    let residuals = residuals(differences, difference);
    let clusters = residuals.len();
    let mut counts = Counts::default();
    for pair in pairs {
        match pair.b.total_cmp(&pair.a) {
            std::cmp::Ordering::Greater => counts.wins += 1,
            std::cmp::Ordering::Less => counts.losses += 1,
            std::cmp::Ordering::Equal => counts.ties += 1,
        }
    }
    let whole = |score: f64| score == 0.0 || score == 1.0;
    let single = pairs.iter().all(|pair| whole(pair.a) && whole(pair.b)) && clusters == items;
    let (interval, bootstrapped) = bootstrap(pairs, confidence, seed);
    Some(Comparison {
        difference,
        standard_error: clustered_error(&residuals, items),
        interval,
        p: if single {
            mcnemar(counts.wins as u64, counts.losses as u64)
        } else {
            bootstrapped
        },
        test: if single {
            "exact McNemar"
        } else {
            "cluster bootstrap"
        },
        counts,
        items,
        clusters,
    })
}

/// The two-sided exact test of whether `wins` and `losses` are two halves of the same.
#[must_use]
pub fn mcnemar(wins: u64, losses: u64) -> f64 {
    let all = wins + losses;
    match Binomial::new(0.5, all) {
        Ok(binomial) if all > 0 => (2.0 * binomial.cdf(wins.min(losses))).min(1.0),
        _ => 1.0,
    }
}

/// A bootstrap-t over clusters: the interval of the mean difference, and the two-sided p of no
/// difference. Dividing each draw by its own error keeps the level with few clusters.
fn bootstrap(pairs: &[Pair], confidence: f64, seed: u64) -> (Interval, f64) {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for pair in pairs {
        let (sum, count) = sums.entry(&pair.cluster).or_default();
        *sum += pair.b - pair.a;
        *count += 1.0;
    }
    let clusters: Vec<(f64, f64)> = sums.into_values().collect();
    let (mean, error) = mean_and_error(clusters.iter().copied());
    if clusters.len() < 2 || error == 0.0 {
        // Nothing varied. At this confidence, no more than this share of clusters is otherwise.
        let number = clusters.len() as f64;
        let other = 1.0 - (1.0 - confidence).powf(1.0 / number);
        let interval = Interval {
            low: mean - other * (mean + 1.0),
            high: mean + other * (1.0 - mean),
        };
        let p = if mean == 0.0 {
            1.0
        } else {
            0.5f64.powf(number - 1.0)
        };
        return (interval, p);
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut draws: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let drawn =
                (0..clusters.len()).map(|_| clusters[random.random_range(0..clusters.len())]);
            let (drawn_mean, drawn_error) = mean_and_error(drawn);
            let off = drawn_mean - mean;
            if off == 0.0 {
                0.0
            } else {
                off / drawn_error.max(error * 1e-3)
            }
        })
        .collect();
    draws.sort_by(f64::total_cmp);
    let at = |share: f64| draws[((share * DRAWS as f64) as usize).min(DRAWS - 1)];
    let tail = (1.0 - confidence) / 2.0;
    let interval = Interval {
        low: (mean - at(1.0 - tail) * error).max(-1.0),
        high: (mean - at(tail) * error).min(1.0),
    };
    let seen = (mean / error).abs();
    let beyond = draws.iter().filter(|draw| draw.abs() >= seen).count();
    (interval, (beyond + 1) as f64 / (DRAWS + 1) as f64)
}

/// The mean over items and its error over clusters, from each cluster's sum and count.
fn mean_and_error(clusters: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let (mut sum, mut count, mut number) = (0.0, 0.0, 0.0);
    let (mut sums, mut products, mut counts) = (0.0, 0.0, 0.0);
    for (s, n) in clusters {
        sum += s;
        count += n;
        number += 1.0;
        sums += s * s;
        products += s * n;
        counts += n * n;
    }
    let mean = sum / count;
    // The sum over clusters of (s - mean n) squared.
    let squares: f64 = sums - 2.0 * mean * products + mean * mean * counts;
    let error = (squares.max(0.0) * number / f64::max(number - 1.0, 1.0)).sqrt() / count;
    (mean, error)
}
