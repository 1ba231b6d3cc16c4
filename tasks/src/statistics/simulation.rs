//! Intervals hold the truth as often as they say, also with clusters; tests keep their level.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;

const RUNS: usize = 1500;

/// A simulated population: clusters share a part of their difficulty.
struct Population {
    mean: f64,
    clusters: usize,
    size: usize,
    rollouts: usize,
    /// How far the difficulty of clusters spreads.
    spread: f64,
}

impl Population {
    /// A cluster's probability of success: the mean, or as far above or below it.
    fn draw(&self, random: &mut ChaCha8Rng) -> Vec<Scores> {
        let mut items = Vec::new();
        for cluster in 0..self.clusters {
            let side = if random.random::<bool>() { 1.0 } else { -1.0 };
            let probability = self.mean + side * self.spread;
            for _ in 0..self.size {
                let rollout = |_| f64::from(u8::from(random.random::<f64>() < probability));
                items.push(Scores {
                    cluster: cluster.to_string(),
                    rollouts: (0..self.rollouts).map(rollout).collect(),
                });
            }
        }
        items
    }
}

#[track_caller]
fn check_coverage(population: &Population) {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let holds = (0..RUNS).filter(|_| {
        let found = mean_at_k(&population.draw(&mut random), 0.95).unwrap();
        (found.interval.low..=found.interval.high).contains(&population.mean)
    });
    let share = holds.count() as f64 / RUNS as f64;
    assert!((0.93..=0.97).contains(&share), "{share}");
}

#[test]
fn intervals_of_means_hold_the_truth() {
    let population = |mean, clusters, size, rollouts, spread| Population {
        mean,
        clusters,
        size,
        rollouts,
        spread,
    };
    check_coverage(&population(0.4, 200, 1, 1, 0.0));
    check_coverage(&population(0.5, 100, 1, 4, 0.3));
    check_coverage(&population(0.5, 40, 5, 1, 0.35));
    check_coverage(&population(0.3, 25, 8, 2, 0.2));
    check_coverage(&population(0.05, 150, 1, 1, 0.0));
    check_coverage(&population(0.97, 150, 1, 2, 0.0));
}

/// Both sides of each pair are drawn from one population, so that there is no difference.
fn null_comparisons(population: &Population, runs: usize) -> Vec<Comparison> {
    let mut random = ChaCha8Rng::seed_from_u64(2);
    (0..runs)
        .map(|run| {
            // A cluster is as hard for one as for the other, but suits them differently.
            let mut pairs = Vec::new();
            for cluster in 0..population.clusters {
                let lean: f64 = random.random_range(-population.spread..=population.spread);
                for _ in 0..population.size {
                    let mut roll = |probability: f64| {
                        let hits = (0..population.rollouts)
                            .filter(|_| random.random::<f64>() < probability);
                        hits.count() as f64 / population.rollouts as f64
                    };
                    pairs.push(Pair {
                        cluster: cluster.to_string(),
                        a: roll(population.mean - lean),
                        b: roll(population.mean + lean),
                    });
                }
            }
            compare(&pairs, 0.95, run as u64).unwrap()
        })
        .collect()
}

#[test]
fn intervals_of_differences_hold_the_truth_with_clusters() {
    for (clusters, size, rollouts, spread) in [(60, 1, 4, 0.2), (30, 6, 2, 0.3)] {
        let population = Population {
            mean: 0.5,
            clusters,
            size,
            rollouts,
            spread,
        };
        let runs = 600;
        let found = null_comparisons(&population, runs);
        let held = found
            .iter()
            .filter(|c| (c.interval.low..=c.interval.high).contains(&0.0));
        let share = held.count() as f64 / runs as f64;
        assert!((0.93..=0.97).contains(&share), "{share}");
        let rejected = found.iter().filter(|c| c.p < 0.05).count() as f64 / runs as f64;
        assert!((0.03..=0.07).contains(&rejected), "{rejected}");
    }
}

#[test]
fn equal_harnesses_are_told_apart_no_more_often_than_the_level() {
    let population = Population {
        mean: 0.4,
        clusters: 100,
        size: 1,
        rollouts: 1,
        spread: 0.0,
    };
    let found = null_comparisons(&population, 600);
    assert!(found.iter().all(|c| c.test == "exact McNemar"));
    let rejected = found.iter().filter(|c| c.p < 0.05).count();
    // The exact test is conservative.
    assert!((6..=36).contains(&rejected), "{rejected} of 600");
}
