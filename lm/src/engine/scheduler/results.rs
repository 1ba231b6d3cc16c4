//! From a step's logits to tokens, scores and ends.

use llguidance::api::StopReason;
use rayon::prelude::*;

use super::{Scheduler, plan::Plan};
use crate::{
    LmError,
    blocks::Span,
    engine::{FinishReason, SampledToken, Work, sampler, sequence::Sequence},
};

impl Scheduler {
    /// Samples, scores and finishes.
    pub(super) fn take_results(
        &mut self,
        plans: &[Plan],
        spans: &[Span],
        logits: &[f32],
        context: usize,
    ) {
        let width = self.model.decoder.vocabulary();
        let mut row = 0;
        let mut rows: Vec<Option<&[f32]>> = vec![None; self.running.len()];
        for (plan, span) in plans.iter().zip(spans) {
            let count = span.wanted.len();
            if count > 0 {
                rows[plan.index] = Some(&logits[row * width..(row + count) * width]);
            }
            row += count;
        }
        let tokenizer = &self.model.tokenizer;
        // Sampling reads whole rows of logits, so it is shared out too; events keep their order.
        let results: Vec<Option<Result<Taken, LmError>>> = self
            .running
            .par_iter_mut()
            .zip(rows)
            .map(|(sequence, rows)| Some(sample(sequence, rows?, width)))
            .collect();
        let mut done: Vec<Option<Option<FinishReason>>> = vec![None; results.len()];
        for (index, result) in results.into_iter().enumerate() {
            let Some(result) = result else { continue };
            let sequence = &mut self.running[index];
            let keys = sequence.keys.len();
            let outcome = match result {
                Ok(Taken::Token(token)) => {
                    self.stats.sampled_tokens += 1;
                    sequence.push(token, tokenizer, context)
                }
                Ok(Taken::Scores(scores)) => Ok(sequence.push_scores(scores)),
                Err(error) => Err(error),
            };
            // A page that sampling began is promised like the others.
            for key in &sequence.keys[keys..] {
                *self.promised.entry(*key).or_default() += 1;
            }
            done[index] = match outcome {
                Ok(None) => None,
                Ok(Some(reason)) => Some(Some(reason)),
                Err(error) => {
                    sequence.fail(error);
                    Some(None)
                }
            };
        }
        for (mut sequence, done) in std::mem::take(&mut self.running).into_iter().zip(done) {
            match done {
                None => self.running.push(sequence),
                Some(reason) => {
                    self.free(&sequence);
                    match reason {
                        Some(reason) => {
                            self.stats.finished += 1;
                            sequence.finish(reason);
                        }
                        None => self.stats.failed += 1,
                    }
                }
            }
        }
    }
}

/// What a sequence got out of a step.
enum Taken {
    Token(SampledToken),
    Scores(Vec<f32>),
}

fn sample(sequence: &mut Sequence, rows: &[f32], width: usize) -> Result<Taken, LmError> {
    let mask =
        match &mut sequence.matcher {
            None => None,
            Some(matcher) => {
                Some(matcher.compute_mask_or_eos().map_err(
                    |error| match matcher.stop_reason() {
                        StopReason::NoExtensionBias => LmError::Constraint(
                            "the vocabulary has no token that goes on from here".to_owned(),
                        ),
                        _ => LmError::Constraint(error.to_string()),
                    },
                )?)
            }
        };
    match &sequence.work {
        Work::Generate(generate) => {
            let allow = mask.map(|mask| {
                move |logits: &mut [f32]| {
                    for (token, logit) in logits.iter_mut().enumerate() {
                        if token >= mask.len()
                            || !mask.is_allowed(u32::try_from(token).unwrap_or(u32::MAX))
                        {
                            *logit = f32::NEG_INFINITY;
                        }
                    }
                }
            });
            let allow = allow.as_ref().map(|allow| allow as &dyn Fn(&mut [f32]));
            let at = (generate.seed, sequence.index());
            let token = sampler::choose(
                &generate.sampling,
                rows,
                &sequence.tokens,
                allow,
                at,
                generate.top,
            );
            Ok(Taken::Token(token))
        }
        Work::Score(_) => {
            let count = rows.len() / width;
            // The step is done already: each row scores the token behind its own.
            let end = (sequence.computed + 1).min(sequence.tokens.len());
            let tokens = &sequence.tokens[end - count..end];
            let scores = rows.chunks_exact(width).zip(tokens);
            Ok(Taken::Scores(
                scores
                    .map(|(row, token)| sampler::log_probability(row, *token))
                    .collect(),
            ))
        }
    }
}
