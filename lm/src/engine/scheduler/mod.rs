//! Which sequences run, and what each computes in a step.

mod admit;
mod plan;
mod results;
mod snapshots;

use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, mpsc},
};

use candle_core::DType;

use self::snapshots::{SNAPSHOTS, Snapshots};
use super::{
    Command, EngineConfig, Shared,
    pages::{Key, PageTable},
    sequence::Sequence,
};
use crate::{
    LmError, Model,
    blocks::{Memory, Span},
    kernels::attention::PAGE,
};

/// What an engine has done since it started, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Steps.
    pub steps: u64,
    /// Tokens of prompts that were computed.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were found computed.
    pub cached_tokens: u64,
    /// Tokens that were sampled.
    pub sampled_tokens: u64,
    /// Requests that were done.
    pub finished: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Times that a sequence was put back for want of room.
    pub put_back: u64,
    /// Requests that wait.
    pub waiting: usize,
    /// Sequences that run.
    pub running: usize,
    /// Pages of the memory that sequences use.
    pub used_pages: usize,
    /// All pages of the memory.
    pub pages: usize,
}

pub(super) struct Scheduler {
    model: Arc<Model>,
    memory: Memory,
    table: PageTable,
    slots: Vec<usize>,
    /// States at ends of pages, for models with recurrent layers.
    snapshots: Snapshots,
    recurrent: bool,
    waiting: VecDeque<Sequence>,
    /// In the order in which they were admitted.
    running: Vec<Sequence>,
    /// Pages that running sequences are about to fill, which others wait for.
    promised: HashMap<Key, usize>,
    step_tokens: usize,
    share: bool,
    stats: Stats,
}

impl Scheduler {
    pub(super) fn new(model: Arc<Model>, config: &EngineConfig) -> Result<Self, LmError> {
        let needs = model.decoder.needs();
        let backend = &model.decoder.backend;
        let recurrent = model.decoder.is_recurrent();
        let of_page = Memory::page_bytes(&needs, backend).max(1);
        // No more than all sequences could fill.
        let context = config.context.unwrap_or(usize::MAX).min(model.context());
        let most = context
            .div_ceil(PAGE)
            .saturating_mul(config.sequences.max(1));
        let pages = (config.memory / of_page).min(most);
        if pages < 2 {
            return Err(LmError::Setting {
                name: "memory",
                value: format!("{} bytes", config.memory),
                bounds: "room for at least 32 positions",
            });
        }
        let sequences = config.sequences.max(1);
        let kept = if recurrent { SNAPSHOTS } else { 0 };
        Ok(Self {
            memory: Memory::new(&needs, pages, sequences + kept, backend)?,
            table: PageTable::new(pages),
            slots: (0..sequences).rev().collect(),
            snapshots: Snapshots::new(sequences..sequences + kept),
            recurrent,
            waiting: VecDeque::new(),
            running: Vec::new(),
            promised: HashMap::new(),
            step_tokens: config.step_tokens.max(1),
            share: config.share_prefixes,
            stats: Stats::default(),
            model,
        })
    }

    pub(super) fn pages(&self) -> usize {
        self.table.len()
    }

    /// Runs until it is told to stop or nobody can tell it anything.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "it moves to the engine's thread"
    )]
    pub(super) fn run(mut self, commands: mpsc::Receiver<Command>, shared: &Shared) {
        'steps: loop {
            let idle = self.running.is_empty() && self.waiting.is_empty();
            let mut next = if idle {
                match commands.recv() {
                    Ok(command) => Some(command),
                    Err(_) => break,
                }
            } else {
                commands.try_recv().ok()
            };
            while let Some(command) = next {
                match command {
                    Command::New(incoming) => self.take(*incoming),
                    Command::Look => {}
                    Command::Stop => break 'steps,
                }
                next = commands.try_recv().ok();
            }
            self.drop_cancelled(shared);
            self.admit(shared);
            // A fault in a step must not leave requests without an answer.
            let step = catch_unwind(AssertUnwindSafe(|| self.step(shared.context)));
            let failed = match step {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("a step of the engine panicked".to_owned()),
            };
            if let Some(message) = failed {
                tracing::error!(message, "a step failed; its sequences are given up");
                self.give_up(&message);
            }
            self.publish(shared);
        }
        for mut sequence in self.running.drain(..).chain(self.waiting.drain(..)) {
            sequence.fail(LmError::Stopped);
        }
        for command in commands.try_iter() {
            if let Command::New(incoming) = command {
                Sequence::new(*incoming, self.model.hash()).fail(LmError::Stopped);
            }
        }
    }

    fn publish(&mut self, shared: &Shared) {
        self.stats.running = self.running.len();
        self.stats.pages = self.table.len();
        self.stats.used_pages = self.table.len() - self.table.available();
        *shared.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.stats;
    }

    /// Gives up every running sequence.
    fn give_up(&mut self, message: &str) {
        for mut sequence in std::mem::take(&mut self.running) {
            self.free(&sequence);
            self.stats.failed += 1;
            sequence.fail(LmError::Compute(candle_core::Error::Msg(
                message.to_owned(),
            )));
        }
    }

    /// Computes one batch and takes its results.
    fn step(&mut self, context: usize) -> Result<(), LmError> {
        let plans = self.plan();
        if plans.is_empty() {
            return Ok(());
        }
        let mut spans = Vec::with_capacity(plans.len());
        for plan in &plans {
            let sequence = &self.running[plan.index];
            let (from, to) = (sequence.computed, sequence.computed + plan.tokens);
            spans.push(Span {
                tokens: sequence.tokens[from..to].to_vec(),
                start: from,
                table: sequence.pages.clone(),
                slot: sequence.slot,
                adapter: sequence.adapter.clone(),
                wanted: sequence.wanted(from, to),
            });
        }
        let decoder = &self.model.decoder;
        let hidden = decoder.hidden(&spans, Some(&mut self.memory))?;
        let wanted: usize = spans.iter().map(|span| span.wanted.len()).sum();
        let logits = if wanted == 0 {
            Vec::new()
        } else {
            decoder
                .logits(&hidden)?
                .to_dtype(DType::F32)?
                .flatten_all()?
                .to_vec1::<f32>()?
        };
        self.stats.steps += 1;
        self.advance(&plans);
        self.take_results(&plans, &spans, &logits, context);
        Ok(())
    }
}
