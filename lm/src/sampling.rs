//! From logits to a token.

/// How a token is chosen; without a bound, by its probability alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f32,
    /// Only the so many likeliest.
    pub top_k: Option<u32>,
    /// Only the likeliest that hold this share.
    pub top_p: Option<f32>,
    /// Only those with this share of the likeliest's probability.
    pub min_p: Option<f32>,
    /// Divides the logits of tokens that occurred, or multiplies them where they are negative.
    pub repetition_penalty: Option<f32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: None,
        }
    }
}

/// A chosen token and the natural logarithm of its probability under the model itself, before the
/// penalty, temperature and bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) token: u32,
    pub(crate) log_probability: f32,
}

impl Sampling {
    pub(crate) fn choose(
        &self,
        logits: &[f32],
        seen: &[u32],
        random: &mut fastrand::Rng,
    ) -> Chosen {
        let mut scaled = logits.to_vec();
        if let Some(penalty) = self.repetition_penalty.filter(|penalty| *penalty > 0.0) {
            let mut seen = seen.to_vec();
            seen.sort_unstable();
            seen.dedup();
            for logit in seen
                .iter()
                .filter_map(|id| index(*id).filter(|id| *id < logits.len()))
            {
                let value = &mut scaled[logit];
                *value = if *value > 0.0 {
                    *value / penalty
                } else {
                    *value * penalty
                };
            }
        }
        let chosen = if self.temperature <= 0.0 {
            likeliest(&scaled)
        } else {
            scaled
                .iter_mut()
                .for_each(|logit| *logit /= self.temperature);
            self.draw(&scaled, random)
        };
        Chosen {
            token: u32::try_from(chosen).unwrap_or(u32::MAX),
            log_probability: log_probability(logits, chosen),
        }
    }

    fn draw(&self, logits: &[f32], random: &mut fastrand::Rng) -> usize {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut candidates: Vec<(usize, f32)> = logits
            .iter()
            .map(|logit| (logit - most).exp())
            .enumerate()
            .collect();
        // Ties in the order of ids, so that the same logits always give the same order.
        candidates.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if let Some(k) = self.top_k.filter(|k| *k > 0) {
            candidates.truncate(k as usize);
        }
        if let Some(share) = self.min_p {
            candidates.retain(|(_, weight)| *weight >= share);
        }
        let mut sum: f32 = candidates.iter().map(|(_, weight)| weight).sum();
        if let Some(share) = self.top_p {
            let mut held = 0.0;
            let kept = candidates
                .iter()
                .position(|(_, weight)| {
                    held += weight;
                    held >= share * sum
                })
                .map_or(candidates.len(), |last| last + 1);
            candidates.truncate(kept.max(1));
            sum = candidates.iter().map(|(_, weight)| weight).sum();
        }
        let mut left = random.f32() * sum;
        for (token, weight) in &candidates {
            left -= weight;
            if left <= 0.0 {
                return *token;
            }
        }
        candidates.last().map_or(0, |(token, _)| *token)
    }
}

fn index(id: u32) -> Option<usize> {
    usize::try_from(id).ok()
}

fn likeliest(logits: &[f32]) -> usize {
    let best = logits
        .iter()
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    best.map_or(0, |(token, _)| token)
}

/// The natural logarithm of a token's probability.
pub(crate) fn log_probability(logits: &[f32], token: usize) -> f32 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
    logits
        .get(token)
        .map_or(f32::NEG_INFINITY, |logit| logit - most - sum.ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [1.0, 3.0, 2.0, -1.0];

    fn drawn(sampling: &Sampling) -> Vec<u32> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut tokens: Vec<u32> = (0..500)
            .map(|_| sampling.choose(&LOGITS, &[], &mut random).token)
            .collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    #[test]
    fn bounds_leave_the_likeliest() {
        assert_eq!(drawn(&Sampling::default()), [0, 1, 2, 3]);
        assert_eq!(
            drawn(&Sampling {
                temperature: 0.0,
                ..Sampling::default()
            }),
            [1]
        );
        assert_eq!(
            drawn(&Sampling {
                top_k: Some(2),
                ..Sampling::default()
            }),
            [1, 2]
        );
        assert_eq!(
            drawn(&Sampling {
                top_p: Some(0.6),
                ..Sampling::default()
            }),
            [1]
        );
        assert_eq!(
            drawn(&Sampling {
                min_p: Some(0.3),
                ..Sampling::default()
            }),
            [1, 2]
        );
    }

    #[test]
    fn probabilities_are_the_models_own() {
        let sampling = Sampling {
            temperature: 0.0,
            top_k: Some(1),
            ..Sampling::default()
        };
        let chosen = sampling.choose(&LOGITS, &[], &mut fastrand::Rng::with_seed(1));
        let sum: f32 = LOGITS.iter().map(|logit| logit.exp()).sum();
        assert!((chosen.log_probability - (3.0_f32.exp() / sum).ln()).abs() < 1e-6);
    }

    #[test]
    fn a_penalty_keeps_from_repeating() {
        let sampling = Sampling {
            temperature: 0.0,
            repetition_penalty: Some(2.0),
            ..Sampling::default()
        };
        assert_eq!(
            sampling
                .choose(&LOGITS, &[1], &mut fastrand::Rng::with_seed(1))
                .token,
            2
        );
    }
}
