//! Means with intervals, paired comparisons, and how many items a difference needs.
//!
//! Scores lie in [0, 1]. An item has `k` rollouts, and items may come in clusters (the same passage,
//! the same game) whose scores hang together: every error here is taken over clusters. The method is
//! that of Miller, "Adding Error Bars to Evals" (arXiv 2411.00640).

mod compare;
mod mean;
mod power;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod simulation;

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF as _, Normal, StudentsT};

pub use compare::{Comparison, Counts, Pair, compare, mcnemar};
pub use mean::{Estimate, mean_at_k, wilson};
pub use power::{detectable, items_needed};

/// An item's rollouts.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// Items with the same cluster are not independent.
    pub cluster: String,
    /// One score a rollout, in [0, 1].
    pub rollouts: Vec<f64>,
}

impl Scores {
    /// The mean over rollouts; 0 without any.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.rollouts.is_empty() {
            return 0.0;
        }
        self.rollouts.iter().sum::<f64>() / self.rollouts.len() as f64
    }
}

/// A two-sided interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The sums of values about their mean, by cluster.
fn residuals<'a>(values: impl Iterator<Item = (&'a str, f64)> + Clone, mean: f64) -> Vec<f64> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for (cluster, value) in values {
        *sums.entry(cluster).or_default() += value - mean;
    }
    sums.into_values().collect()
}

/// The standard error of a mean over clusters, with the correction for few of them; 0 for fewer than
/// two, where there is none.
fn clustered_error(residuals: &[f64], items: usize) -> f64 {
    let clusters = residuals.len() as f64;
    if residuals.len() < 2 {
        return 0.0;
    }
    let sum: f64 = residuals.iter().map(|r| r * r).sum();
    (sum * clusters / (clusters - 1.0)).sqrt() / items as f64
}

/// The value that a normal variable stays below with this probability.
fn normal_quantile(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}

/// The same of Student's t.
fn t_quantile(probability: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(probability))
}
