//! From logits to a token.

use super::{SampledToken, Sampling};
use crate::{kernels::rows::log_sum_exp, simd::dispatch};

/// The random number of a reply's token `index`: a function of the seed and of nothing else, so that
/// a sequence that was put back goes on as if it had not been.
fn uniform(seed: u64, index: usize) -> f64 {
    // SplitMix64, by Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014).
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let step = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = mix(mix(seed).wrapping_add(step));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Below this a temperature is taken as 0: logits that are divided by less overflow.
const COLDEST: f32 = 1e-5;

/// Makes the logits of forbidden tokens minus infinity.
pub(super) type Mask<'a> = &'a dyn Fn(&mut [f32]);

/// Chooses the token with this index in the reply.
pub(super) fn choose(
    sampling: &Sampling,
    logits: &[f32],
    seen: &[u32],
    mask: Option<Mask<'_>>,
    (seed, index): (u64, usize),
    top: usize,
) -> SampledToken {
    let mut scaled = logits.to_vec();
    if let Some(penalty) = sampling.repetition_penalty {
        let mut seen = seen.to_vec();
        seen.sort_unstable();
        seen.dedup();
        for token in seen {
            if let Some(logit) = scaled.get_mut(token as usize) {
                *logit = if *logit > 0.0 {
                    *logit / penalty
                } else {
                    *logit * penalty
                };
            }
        }
    }
    if let Some(mask) = mask {
        mask(&mut scaled);
    }
    let chosen = if sampling.temperature < COLDEST {
        likeliest(&scaled)
    } else {
        scaled
            .iter_mut()
            .for_each(|logit| *logit /= sampling.temperature);
        draw(sampling, &scaled, uniform(seed, index))
    };
    let total = log_sum_exp(logits);
    let log_probability = |token: usize| logits.get(token).map_or(f32::NEG_INFINITY, |x| x - total);
    let likely = best(logits, top).into_iter();
    SampledToken {
        id: id(chosen),
        log_probability: log_probability(chosen),
        top: likely
            .map(|token| (id(token), log_probability(token)))
            .collect(),
    }
}

/// The natural logarithm of a token's probability.
pub(super) fn log_probability(logits: &[f32], token: u32) -> f32 {
    logits
        .get(token as usize)
        .map_or(f32::NEG_INFINITY, |logit| logit - log_sum_exp(logits))
}

fn id(token: usize) -> u32 {
    u32::try_from(token).unwrap_or(u32::MAX)
}

fn likeliest(logits: &[f32]) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (token, logit) in logits.iter().enumerate() {
        if *logit > best.1 {
            best = (token, *logit);
        }
    }
    best.0
}

/// The so many likeliest, the likeliest first; ties in the order of ids.
fn best(logits: &[f32], count: usize) -> Vec<usize> {
    if count == 0 {
        return Vec::new();
    }
    let order = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    let mut tokens: Vec<usize> = (0..logits.len()).collect();
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count, order);
        tokens.truncate(count);
    }
    tokens.sort_unstable_by(order);
    tokens
}

/// Draws a token from scaled logits; `at` is from 0 to 1.
fn draw(sampling: &Sampling, logits: &[f32], at: f64) -> usize {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let bounded = sampling
        .top_k
        .is_some_and(|k| k > 0 && (k as usize) < logits.len())
        || sampling.top_p.is_some_and(|share| share < 1.0)
        || sampling.min_p.is_some_and(|share| share > 0.0);
    let mut weights = logits.to_vec();
    dispatch(Weights {
        logits: &mut weights,
        largest,
    });
    if !bounded {
        return pick((0..logits.len()).map(|token| (token, weights[token])), at);
    }
    let k = sampling
        .top_k
        .filter(|k| *k > 0)
        .map_or(logits.len(), |k| k as usize);
    let least = sampling.min_p.unwrap_or(0.0);
    let within = |tokens: &mut Vec<usize>| tokens.retain(|token| weights[*token] >= least);
    let Some(share) = sampling.top_p.filter(|share| *share < 1.0) else {
        let mut tokens = if k < logits.len() {
            best(logits, k)
        } else {
            (0..logits.len()).collect()
        };
        within(&mut tokens);
        return pick(tokens.into_iter().map(|token| (token, weights[token])), at);
    };
    // Most of the mass is in few tokens, so a few are looked at first.
    let mass = |tokens: &[usize]| tokens.iter().map(|t| f64::from(weights[*t])).sum::<f64>();
    let all_mass = if k >= logits.len() {
        let inside = weights.iter().filter(|weight| **weight >= least);
        Some(inside.map(|weight| f64::from(*weight)).sum::<f64>())
    } else {
        None
    };
    for count in [64, 1024, logits.len()] {
        let count = count.min(k).min(logits.len());
        let mut tokens = best(logits, count);
        within(&mut tokens);
        let whole = tokens.len() < count || count == k.min(logits.len());
        let total = match all_mass {
            Some(mass) => mass,
            // With a bound on their number the share is one of these.
            None if whole => mass(&tokens),
            None => continue,
        };
        let mut held = 0.0;
        let reached = tokens.iter().position(|token| {
            held += f64::from(weights[*token]);
            held >= f64::from(share) * total
        });
        if let Some(last) = reached {
            tokens.truncate(last + 1);
        } else if !whole {
            continue;
        }
        return pick(tokens.into_iter().map(|token| (token, weights[token])), at);
    }
    likeliest(logits)
}

/// The token at a share of the total weight.
fn pick(weights: impl Iterator<Item = (usize, f32)> + Clone, at: f64) -> usize {
    let total: f64 = weights.clone().map(|(_, weight)| f64::from(weight)).sum();
    let mut left = at * total;
    let mut last = 0;
    for (token, weight) in weights {
        if weight > 0.0 {
            last = token;
            left -= f64::from(weight);
            if left < 0.0 {
                return token;
            }
        }
    }
    last
}

/// Logits to weights: the exponential of each one's distance from the largest, in place.
struct Weights<'a> {
    logits: &'a mut [f32],
    largest: f32,
}

impl crate::simd::Kernel for Weights<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: crate::simd::Simd>(self, s: S) {
        let (lanes, rest) = self.logits.as_chunks_mut::<16>();
        for x in lanes {
            let masked = x.map(|x| x == f32::NEG_INFINITY);
            s.store(s.exp(s.sub(s.load(x), s.splat(self.largest))), x);
            x.iter_mut().zip(masked).for_each(|(x, masked)| {
                if masked {
                    *x = 0.0;
                }
            });
        }
        rest.iter_mut().for_each(|x| *x = (*x - self.largest).exp());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [1.0, 3.0, 2.0, -1.0];

    fn drawn(sampling: &Sampling) -> Vec<usize> {
        let mut counts = vec![0; 4];
        for seed in 0..2000 {
            counts[choose(sampling, &LOGITS, &[], None, (seed, 3), 0).id as usize] += 1;
        }
        counts
    }

    #[test]
    fn tokens_are_drawn_by_their_probability() {
        let total: f32 = LOGITS.iter().map(|x| x.exp()).sum();
        for (count, logit) in drawn(&Sampling::default()).iter().zip(LOGITS) {
            let expected = 2000.0 * logit.exp() / total;
            // Four standard deviations.
            let off = 4.0 * expected.sqrt() + 1.0;
            assert!((*count as f32 - expected).abs() < off, "{count} {expected}");
        }
    }

    #[test]
    fn bounds_leave_out_what_is_unlikely() {
        let only = |sampling: Sampling, kept: &[usize]| {
            for (token, count) in drawn(&sampling).into_iter().enumerate() {
                assert_eq!(count > 0, kept.contains(&token), "{sampling:?} {token}");
            }
        };
        let plain = Sampling::default;
        only(
            Sampling {
                temperature: 0.0,
                ..plain()
            },
            &[1],
        );
        only(
            Sampling {
                top_k: Some(2),
                ..plain()
            },
            &[1, 2],
        );
        only(
            Sampling {
                top_p: Some(0.7),
                ..plain()
            },
            &[1, 2],
        );
        only(
            Sampling {
                top_p: Some(0.5),
                ..plain()
            },
            &[1],
        );
        only(
            Sampling {
                top_k: Some(3),
                top_p: Some(0.95),
                ..plain()
            },
            &[0, 1, 2],
        );
        only(
            Sampling {
                min_p: Some(0.2),
                ..plain()
            },
            &[1, 2],
        );
        only(
            Sampling {
                min_p: Some(0.1),
                top_p: Some(0.99),
                ..plain()
            },
            &[0, 1, 2],
        );
    }

    #[test]
    fn a_penalty_and_a_mask_change_the_choice_but_not_the_log_probability() {
        let greedy = Sampling {
            temperature: 0.0,
            repetition_penalty: Some(4.0),
            ..Sampling::default()
        };
        let chosen = choose(&greedy, &LOGITS, &[1], None, (0, 0), 2);
        assert_eq!(chosen.id, 2);
        assert!((chosen.log_probability - log_probability(&LOGITS, 2)).abs() < 1e-6);
        assert_eq!(
            chosen.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            [1, 2]
        );
        let only_last = |logits: &mut [f32]| logits[..3].fill(f32::NEG_INFINITY);
        for seed in 0..50 {
            let chosen = choose(
                &Sampling::default(),
                &LOGITS,
                &[],
                Some(&only_last),
                (seed, 0),
                0,
            );
            assert_eq!(chosen.id, 3);
        }
    }
}
