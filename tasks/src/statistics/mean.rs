//! mean@k and its interval.

use serde::Serialize;

use super::{Interval, Scores, clustered_error, normal_quantile, residuals, t_quantile};

/// A mean over items.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Estimate {
    /// The mean over items of the mean over their rollouts.
    pub mean: f64,
    /// Over clusters.
    pub standard_error: f64,
    /// At the confidence that was asked for.
    pub interval: Interval,
    /// How many items.
    pub items: usize,
    /// How many clusters they come in.
    pub clusters: usize,
}

/// mean@k: the mean over items of the mean over rollouts, with the interval that holds the true mean
/// with this confidence. The interval is Wilson's, so that it is right near 0 and 1, too, with as
/// many trials as the standard error over clusters is worth, and Student's quantile for so many
/// clusters. `None` without items.
#[must_use]
pub fn mean_at_k(scores: &[Scores], confidence: f64) -> Option<Estimate> {
    if scores.is_empty() {
        return None;
    }
    let items = scores.len();
    let mean = scores.iter().map(Scores::mean).sum::<f64>() / items as f64;
    let values = scores
        .iter()
        .map(|item| (item.cluster.as_str(), item.mean()));
    let residuals = residuals(values, mean);
    let clusters = residuals.len();
    let standard_error = clustered_error(&residuals, items);
    // As many independent trials as would have this error.
    let trials = if standard_error > 0.0 {
        (mean * (1.0 - mean) / standard_error.powi(2)).max(1.0)
    } else {
        clusters as f64
    };
    let interval = if clusters < 2 {
        wilson(mean, trials, confidence)
    } else {
        let quantile = t_quantile(0.5 + confidence / 2.0, clusters as f64 - 1.0);
        wilson_at(mean, trials, quantile)
    };
    Some(Estimate {
        mean,
        standard_error,
        interval,
        items,
        clusters,
    })
}

/// Wilson's interval of a share that was seen in so many trials.
#[must_use]
pub fn wilson(share: f64, trials: f64, confidence: f64) -> Interval {
    wilson_at(share, trials, normal_quantile(0.5 + confidence / 2.0))
}

fn wilson_at(share: f64, trials: f64, z: f64) -> Interval {
    let z2 = z * z;
    let centre = (share + z2 / (2.0 * trials)) / (1.0 + z2 / trials);
    let spread = (share * (1.0 - share) / trials + z2 / (4.0 * trials * trials)).sqrt();
    let half = z * spread / (1.0 + z2 / trials);
    Interval {
        low: (centre - half).max(0.0),
        high: (centre + half).min(1.0),
    }
}
