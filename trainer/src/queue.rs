//! Which items come next, over restarts.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A place in an endless sequence of items: each epoch has every item once, in an order drawn anew.
///
/// No item comes twice within an epoch. A batch may reach over the border of two epochs, so that an
/// epoch is exactly as many items as there are, whatever the size of batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Queue {
    /// Fixes the orders.
    pub seed: u64,
    /// Items that were given.
    pub given: u64,
}

impl Queue {
    /// At the beginning.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, given: 0 }
    }

    /// The next `count` of `ids`, as indices, each with its epoch.
    pub fn take(&mut self, ids: &[&str], count: usize) -> Vec<(usize, u64)> {
        let mut taken = Vec::with_capacity(count);
        let mut order: Option<(u64, Vec<usize>)> = None;
        while taken.len() < count && !ids.is_empty() {
            let (epoch, place) = (
                self.given / ids.len() as u64,
                (self.given % ids.len() as u64) as usize,
            );
            let order = match &order {
                Some((of, order)) if *of == epoch => order,
                _ => &order.insert((epoch, self.order(ids, epoch))).1,
            };
            taken.push((order[place], epoch));
            self.given += 1;
        }
        taken
    }

    /// Epochs that are over, with the share of the one that is not.
    #[must_use]
    pub fn epochs(&self, items: usize) -> f64 {
        self.given as f64 / items.max(1) as f64
    }

    fn order(&self, ids: &[&str], epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_cached_key(|index| {
            let mut hasher = Sha256::new();
            hasher.update(self.seed.to_le_bytes());
            hasher.update(epoch.to_le_bytes());
            hasher.update(ids[*index].as_bytes());
            hasher.finalize()
        });
        order
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];

    #[test]
    fn every_epoch_has_every_item_once_and_a_restart_changes_nothing() {
        let mut queue = Queue::new(1);
        let mut all = Vec::new();
        for _ in 0..5 {
            all.extend(queue.take(&IDS, 2));
            // As a restart does.
            queue = serde_json::from_str(&serde_json::to_string(&queue).unwrap()).unwrap();
        }
        for epoch in 0..2 {
            let items: BTreeSet<usize> = all
                .iter()
                .filter(|(_, e)| *e == epoch)
                .map(|(i, _)| *i)
                .collect();
            assert_eq!(items.len(), 5);
        }
        assert!((queue.epochs(5) - 2.0).abs() < 1e-9);
        let order = |epoch| -> Vec<usize> {
            all.iter()
                .filter(|(_, e)| *e == epoch)
                .map(|(i, _)| *i)
                .collect()
        };
        assert_ne!(order(0), order(1));
        assert_eq!(Queue::new(1).take(&IDS, 10), all);
        assert_ne!(Queue::new(2).take(&IDS, 10), all);
    }

    #[test]
    fn nothing_comes_of_nothing() {
        assert!(Queue::new(0).take(&[], 3).is_empty());
    }
}
