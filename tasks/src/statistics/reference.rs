//! Against scipy and statsmodels: `fixtures/make_statistics.py` makes the values.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Made {
    means: Vec<Clustered>,
    wilson: Vec<(f64, f64, f64, f64, f64)>,
    mcnemar: Vec<(u64, u64, f64)>,
    power: Vec<(f64, f64, f64, f64)>,
}

#[derive(Deserialize)]
struct Clustered {
    clusters: Vec<u32>,
    scores: Vec<f64>,
    mean: f64,
    error: f64,
    low: f64,
    high: f64,
}

fn made() -> Made {
    serde_json::from_str(include_str!("../../fixtures/statistics.json")).unwrap()
}

#[track_caller]
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} for {expected}");
}

#[test]
fn means_and_errors_over_clusters() {
    for case in made().means {
        let items: Vec<Scores> = case
            .clusters
            .iter()
            .zip(&case.scores)
            .map(|(cluster, score)| Scores {
                cluster: cluster.to_string(),
                rollouts: vec![*score],
            })
            .collect();
        let found = mean_at_k(&items, 0.95).unwrap();
        near(found.mean, case.mean);
        near(found.standard_error, case.error);
        let half = t_quantile(0.975, found.clusters as f64 - 1.0) * found.standard_error;
        near(found.mean - half, case.low);
        near(found.mean + half, case.high);
        // A difference from nothing has the same error.
        let pairs: Vec<Pair> = items
            .iter()
            .map(|item| Pair {
                cluster: item.cluster.clone(),
                a: 0.0,
                b: item.mean(),
            })
            .collect();
        let compared = compare(&pairs, 0.95, 1).unwrap();
        near(compared.standard_error, case.error);
    }
}

#[test]
fn shares_near_the_ends() {
    for (successes, trials, alpha, low, high) in made().wilson {
        let found = wilson(successes / trials, trials, 1.0 - alpha);
        near(found.low, low);
        near(found.high, high);
    }
}

#[test]
fn exact_tests_of_wins_and_losses() {
    for (wins, losses, p) in made().mcnemar {
        near(mcnemar(wins, losses), p);
    }
    near(mcnemar(0, 0), 1.0);
}

#[test]
fn items_for_a_difference() {
    for (effect, alpha, power, items) in made().power {
        let found = items_needed(effect, 1.0, alpha, power);
        // The reference counts the other tail's tiny share of the power, too.
        assert!((found as f64 - items).abs() <= 1.0, "{found} for {items}");
        assert!(detectable(found, 1.0, alpha, power) <= effect);
        assert!(detectable(found - 1, 1.0, alpha, power) > effect);
    }
}

/// Where nothing varied, the interval is that of a share that was never seen (Clopper and Pearson).
#[test]
fn no_variation_is_no_certainty() {
    let pairs = |b: f64, clusters: usize| -> Vec<Pair> {
        let pair = |i: usize| Pair {
            cluster: i.to_string(),
            a: 0.0,
            b,
        };
        (0..clusters).map(pair).collect()
    };
    let same = compare(&pairs(0.0, 59), 0.95, 1).unwrap();
    near(same.p, 1.0);
    assert!((same.interval.high - 0.0495).abs() < 1e-3, "{same:?}");
    near(same.interval.low, -same.interval.high);
    let better = compare(&pairs(1.0, 59), 0.95, 1).unwrap();
    near(better.interval.high, 1.0);
    assert!((better.interval.low - 0.901).abs() < 1e-3, "{better:?}");
    assert!(better.p < 1e-9);
    let one = compare(&pairs(1.0, 1), 0.95, 1).unwrap();
    near(one.p, 1.0);
}
