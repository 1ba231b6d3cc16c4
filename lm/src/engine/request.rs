//! What an engine is asked for, and what it answers.

use crate::LmError;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The prompt's token ids.
    pub prompt: Vec<u32>,
    /// What to do with it.
    pub work: Work,
    /// The adapter to use, by the name that it was loaded under.
    pub adapter: Option<String>,
}

/// What to do with a prompt.
#[derive(Clone, Debug)]
pub enum Work {
    /// Write a reply.
    Generate(Generate),
    /// Give the log-probability of each of these token ids after the prompt.
    Score(Vec<u32>),
}

/// How to write a reply.
#[derive(Clone, Debug, Default)]
pub struct Generate {
    /// The most tokens; the context is a limit too.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end the reply and are not part of it.
    pub stops: Vec<String>,
    /// Token ids that end the reply, besides the model's own.
    pub stop_ids: Vec<u32>,
    /// The model's own ends do not end the reply: for measuring.
    pub ignore_end: bool,
    /// What the reply must look like.
    pub constraint: Option<Constraint>,
    /// Fixes what is random.
    pub seed: u64,
    /// For each token, give so many of the likeliest.
    pub top: usize,
}

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

/// What a reply must look like.
#[derive(Clone, Debug, PartialEq)]
pub enum Constraint {
    /// One of these texts.
    Choices(Vec<String>),
    /// All of it matches this regular expression.
    Regex(String),
    /// JSON of this schema.
    JsonSchema(serde_json::Value),
}

/// What happens to a request. The last event is any but a token.
#[derive(Debug)]
pub enum Event {
    /// A token was sampled.
    Token {
        /// It, and its log-probability.
        token: SampledToken,
        /// The text that is now certain to be part of the reply.
        text: String,
    },
    /// The reply is done.
    Generated(Generated),
    /// The scoring is done.
    Scored(Scored),
    /// The request failed.
    Failed(LmError),
}

/// A token that was sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledToken {
    /// Its id.
    pub id: u32,
    /// The natural logarithm of its probability under the model itself: before penalty,
    /// temperature, bounds and constraint.
    pub log_probability: f32,
    /// The likeliest tokens at its place, in the same terms.
    pub top: Vec<(u32, f32)>,
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Its text, without stop strings and control tokens.
    pub text: String,
    /// Why it ended.
    pub finish: FinishReason,
    /// Every token that was sampled, the one that ended the turn included.
    pub tokens: Vec<SampledToken>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How many of them were found computed.
    pub cached_tokens: usize,
}

impl Generated {
    /// The ids that were sampled.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its turn, a stop string came, or the constraint was filled.
    Stop,
    /// It reached its longest length, or the context's.
    Length,
}

/// The result of a scoring.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The natural logarithm of each token's probability.
    pub log_probabilities: Vec<f32>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How many of them were found computed.
    pub cached_tokens: usize,
}

/// The most stop strings, and their longest length.
const STOPS: usize = 64;
const LONGEST_STOP: usize = 1024;
/// The most of the likeliest tokens.
const TOP: usize = 64;

impl Request {
    /// Refuses what makes no sense.
    pub(super) fn check(&self, vocabulary: usize, context: usize) -> Result<(), LmError> {
        if self.prompt.is_empty() {
            return Err(LmError::Empty);
        }
        let after: &[u32] = match &self.work {
            Work::Generate(_) => &[],
            Work::Score(continuation) => continuation,
        };
        if matches!(&self.work, Work::Score(continuation) if continuation.is_empty()) {
            return Err(LmError::Setting {
                name: "continuation",
                value: "empty".to_owned(),
                bounds: "at least one token",
            });
        }
        let all = self.prompt.iter().chain(after);
        if let Some(token) = all.into_iter().find(|token| **token as usize >= vocabulary) {
            return Err(LmError::Token {
                token: *token,
                vocabulary,
            });
        }
        let tokens = self.prompt.len() + after.len();
        // A reply needs room for one token.
        let most = if after.is_empty() {
            context.saturating_sub(1)
        } else {
            context
        };
        if tokens > most {
            return Err(LmError::TooLong {
                tokens,
                limit: context,
            });
        }
        match &self.work {
            Work::Generate(generate) => generate.check(),
            Work::Score(_) => Ok(()),
        }
    }
}

impl Generate {
    fn check(&self) -> Result<(), LmError> {
        let refused = |name, value: String, bounds| {
            Err(LmError::Setting {
                name,
                value,
                bounds,
            })
        };
        let sampling = &self.sampling;
        if !(0.0..=100.0).contains(&sampling.temperature) {
            let bounds = "between 0 and 100";
            return refused("temperature", sampling.temperature.to_string(), bounds);
        }
        for (name, share) in [("top_p", sampling.top_p), ("min_p", sampling.min_p)] {
            if let Some(share) = share.filter(|share| !(0.0..=1.0).contains(share)) {
                return refused(name, share.to_string(), "between 0 and 1");
            }
        }
        let penalty = sampling.repetition_penalty;
        if let Some(penalty) = penalty.filter(|penalty| !(0.01..=100.0).contains(penalty)) {
            return refused(
                "repetition_penalty",
                penalty.to_string(),
                "between 0.01 and 100",
            );
        }
        if self.max_tokens == 0 {
            return refused("max_tokens", "0".to_owned(), "at least 1");
        }
        if self.stops.len() > STOPS || self.stops.iter().any(|stop| stop.len() > LONGEST_STOP) {
            let bounds = "at most 64 texts of at most 1024 bytes";
            return refused("stop", format!("{} texts", self.stops.len()), bounds);
        }
        if self.top > TOP {
            return refused("top_logprobs", self.top.to_string(), "at most 64");
        }
        Ok(())
    }
}
