//! One request in the engine.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use llguidance::Matcher;

use super::{
    Event, FinishReason, Generated, Request, SampledToken, Scored, Sink, Work,
    pages::{self, Key},
};
use crate::{
    Adapter, LmError,
    kernels::attention::PAGE,
    text::{TextStream, Tokenizer},
};

/// A request that was just taken.
pub(super) struct Incoming {
    pub(super) id: u64,
    pub(super) request: Request,
    pub(super) adapter: Option<Arc<Adapter>>,
    pub(super) matcher: Option<Matcher>,
    pub(super) sink: Sink,
    pub(super) cancelled: Arc<AtomicBool>,
}

/// A request with what was computed for it.
pub(super) struct Sequence {
    pub(super) id: u64,
    pub(super) adapter: Option<Arc<Adapter>>,
    pub(super) work: Work,
    pub(super) matcher: Option<Matcher>,
    /// The prompt, then what was sampled or is to be scored.
    pub(super) tokens: Vec<u32>,
    pub(super) prompt: usize,
    /// How many tokens the memory holds.
    pub(super) computed: usize,
    pub(super) pages: Vec<u32>,
    /// The keys of all full pages of `tokens`.
    pub(super) keys: Vec<Key>,
    /// How many pages the table knows what they hold.
    pub(super) registered: usize,
    pub(super) slot: usize,
    pub(super) cached: Option<usize>,
    /// Ends of pages at which the recurrent state is kept.
    pub(super) marks: Vec<usize>,
    root: Key,
    stream: TextStream,
    sampled: Vec<SampledToken>,
    scores: Vec<f32>,
    sink: Sink,
    cancelled: Arc<AtomicBool>,
}

impl Sequence {
    pub(super) fn new(incoming: Incoming, model: &str) -> Self {
        let Request {
            prompt: mut tokens,
            work,
            ..
        } = incoming.request;
        let prompt = tokens.len();
        let stops = match &work {
            Work::Generate(generate) => generate.stops.clone(),
            Work::Score(continuation) => {
                tokens.extend(continuation);
                Vec::new()
            }
        };
        let root = pages::root(model, incoming.adapter.as_deref().map(Adapter::hash));
        Self {
            id: incoming.id,
            keys: pages::keys(root, &tokens),
            adapter: incoming.adapter,
            matcher: incoming.matcher,
            work,
            tokens,
            prompt,
            computed: 0,
            pages: Vec::new(),
            registered: 0,
            slot: 0,
            cached: None,
            marks: Vec::new(),
            root,
            stream: TextStream::new(stops),
            sampled: Vec::new(),
            scores: Vec::new(),
            sink: incoming.sink,
            cancelled: incoming.cancelled,
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// It was never admitted.
    pub(super) fn is_new(&self) -> bool {
        self.cached.is_none()
    }

    /// Tokens that are to be computed before the next can be sampled.
    pub(super) fn missing(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// How many tokens at the beginning need no logits, and so may be found computed.
    pub(super) fn reusable(&self) -> usize {
        match &self.work {
            Work::Generate(_) => self.tokens.len() - 1,
            Work::Score(_) => self.prompt - 1,
        }
    }

    /// The index of the next token in the reply.
    pub(super) fn index(&self) -> usize {
        self.sampled.len()
    }

    /// Which of the rows from `from` to `to` need logits, counted from `from`.
    pub(super) fn wanted(&self, from: usize, to: usize) -> Vec<usize> {
        match &self.work {
            Work::Generate(_) if to == self.tokens.len() => vec![to - from - 1],
            Work::Generate(_) => Vec::new(),
            // The last token's logits are nobody's.
            Work::Score(_) => {
                let last = self.tokens.len() - 1;
                (from.max(self.prompt - 1)..to.min(last))
                    .map(|row| row - from)
                    .collect()
            }
        }
    }

    /// Takes a token that was sampled. Gives the reason when the reply ends with it.
    pub(super) fn push(
        &mut self,
        token: SampledToken,
        tokenizer: &Tokenizer,
        context: usize,
    ) -> Result<Option<FinishReason>, LmError> {
        let Work::Generate(generate) = &self.work else {
            return Err(LmError::Internal("a scoring sampled a token"));
        };
        let id = token.id;
        self.tokens.push(id);
        if self.tokens.len().is_multiple_of(PAGE) {
            // Only the last page is new.
            let full = self.tokens.len() / PAGE;
            let before = self.keys.last().copied().unwrap_or(self.root);
            self.keys
                .extend(pages::keys(before, &self.tokens[(full - 1) * PAGE..]));
        }
        self.sampled.push(token.clone());
        let mut finish = None;
        let own_end = tokenizer.ends.contains(&id) && !generate.ignore_end;
        let ended = own_end || generate.stop_ids.contains(&id);
        if let Some(matcher) = &mut self.matcher {
            // An end is no part of the grammar where it is not the one that the grammar knows.
            let consumed = if ended {
                Ok(())
            } else {
                matcher.consume_token(id)
            };
            consumed.map_err(|error| LmError::Constraint(error.to_string()))?;
            if matcher.is_stopped() {
                finish = Some(FinishReason::Stop);
            }
        }
        let length = self.sampled.len() >= generate.max_tokens || self.tokens.len() >= context;
        if ended || self.stream.push(id, tokenizer)? {
            finish = Some(FinishReason::Stop);
        } else if finish.is_none() && length {
            finish = Some(FinishReason::Length);
        }
        if finish.is_some() {
            self.stream.finish(tokenizer)?;
        }
        let text = self.stream.news(finish.is_some());
        (self.sink)(Event::Token { token, text });
        Ok(finish)
    }

    /// Takes the log-probabilities of the next tokens that are scored. Gives a reason when they
    /// were the last.
    pub(super) fn push_scores(&mut self, scores: Vec<f32>) -> Option<FinishReason> {
        self.scores.extend(scores);
        (self.prompt + self.scores.len() == self.tokens.len()).then_some(FinishReason::Stop)
    }

    /// Says that it is done.
    pub(super) fn finish(&mut self, finish: FinishReason) {
        let cached_tokens = self.cached.unwrap_or_default().min(self.prompt);
        let event = match &self.work {
            Work::Generate(_) => Event::Generated(Generated {
                text: self.stream.text().to_owned(),
                finish,
                tokens: std::mem::take(&mut self.sampled),
                prompt_tokens: self.prompt,
                cached_tokens,
            }),
            Work::Score(_) => Event::Scored(Scored {
                log_probabilities: std::mem::take(&mut self.scores),
                prompt_tokens: self.prompt,
                cached_tokens,
            }),
        };
        (self.sink)(event);
    }

    /// Says that it failed.
    pub(super) fn fail(&mut self, error: LmError) {
        (self.sink)(Event::Failed(error));
    }

    /// Forgets what was computed, but not what was sampled or scored.
    pub(super) fn put_back(&mut self) {
        self.computed = 0;
        self.registered = 0;
        self.pages.clear();
        self.marks.clear();
        if let Work::Score(_) = self.work {
            self.scores.clear();
        }
    }
}
