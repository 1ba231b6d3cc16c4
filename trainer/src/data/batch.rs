//! Which sequences are in a step of the optimizer together, and which in one pass.

use super::Sequence;

/// Steps of the optimizer: the sequences in an order drawn from the seed, so many at a time.
#[must_use]
pub fn minibatches(mut sequences: Vec<Sequence>, size: usize, seed: u64) -> Vec<Vec<Sequence>> {
    sequences.sort_by_cached_key(|sequence| {
        use sha2::{Digest as _, Sha256};
        let mut hasher = Sha256::new();
        hasher.update(seed.to_le_bytes());
        hasher.update(sequence.item.as_bytes());
        hasher.update([0]);
        hasher.update(sequence.rollout.to_le_bytes());
        for token in &sequence.supervised.tokens {
            hasher.update(token.to_le_bytes());
        }
        hasher.finalize()
    });
    let mut batches = Vec::new();
    while !sequences.is_empty() {
        let rest = sequences.split_off(size.clamp(1, sequences.len()));
        batches.push(std::mem::replace(&mut sequences, rest));
    }
    batches
}

/// Passes through the model: as many sequences as fit into a budget of tokens, one after the other
/// without padding. A sequence that is longer than the budget has a pass of its own.
pub fn micro_batches(batch: &[Sequence], budget: usize) -> impl Iterator<Item = &[Sequence]> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut tokens = 0;
        let fitting = rest
            .iter()
            .take_while(|sequence| {
                tokens += sequence.supervised.tokens.len();
                tokens <= budget
            })
            .count();
        let (first, others) = rest.split_at(fitting.max(1));
        rest = others;
        Some(first)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whale_lm::Supervised;

    use super::*;

    fn of_lengths(lengths: &[usize]) -> Vec<Sequence> {
        lengths
            .iter()
            .enumerate()
            .map(|(index, length)| Sequence {
                item: index.to_string(),
                rollout: 0,
                supervised: Supervised {
                    tokens: vec![1; *length],
                    chosen: vec![1],
                },
                log_probabilities: Vec::new(),
            })
            .collect()
    }

    proptest! {
        #[test]
        fn every_sequence_is_in_one_pass(
            lengths in prop::collection::vec(1usize..50, 0..40),
            budget in 1usize..100,
            size in 1usize..20,
        ) {
            let all = of_lengths(&lengths);
            let batches = minibatches(all.clone(), size, 7);
            prop_assert!(batches.iter().all(|batch| (1..=size).contains(&batch.len())));
            let mut seen = Vec::new();
            for batch in &batches {
                for pass in micro_batches(batch, budget) {
                    let tokens: usize = pass.iter().map(|s| s.supervised.tokens.len()).sum();
                    prop_assert!(tokens <= budget || pass.len() == 1);
                    seen.extend(pass.iter().map(|sequence| sequence.item.clone()));
                }
            }
            seen.sort();
            let mut expected: Vec<String> = all.into_iter().map(|sequence| sequence.item).collect();
            expected.sort();
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn the_seed_alone_says_the_order() {
        let items = |seed| -> Vec<String> {
            let batches = minibatches(of_lengths(&[3; 20]), 64, seed);
            batches[0].iter().map(|s| s.item.clone()).collect()
        };
        assert_eq!(items(1), items(1));
        assert_ne!(items(1), items(2));
    }
}
