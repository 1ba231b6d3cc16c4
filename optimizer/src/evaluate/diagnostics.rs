//! What is told of an episode beside its score, from its record.

use std::collections::BTreeMap;

use whale_runtime::{
    contract::FinishReason,
    episode::Record,
    sandbox::{HostCall, HostReply},
};
use whale_tasks::{
    chess::{Act, Played, Puzzle},
    grade::contains_answer,
};

/// Signals by name. Shares are 0 or 1, so that their mean is a rate.
pub(super) type Signals = BTreeMap<String, f64>;

pub(super) fn set(signals: &mut Signals, name: &str, value: impl Into<f64>) {
    signals.insert(name.to_owned(), value.into());
}

pub(super) fn flag(signals: &mut Signals, name: &str, value: bool) {
    set(signals, name, u8::from(value));
}

/// What holds for every domain.
pub(super) fn common(record: &Record) -> Signals {
    let mut signals = Signals::new();
    let completions = || {
        record.calls.iter().filter_map(|call| match &call.reply {
            HostReply::Complete(replies) => Some(replies.iter().flatten()),
            _ => None,
        })
    };
    let cut = completions()
        .flatten()
        .any(|completion| completion.finish_reason == FinishReason::Length);
    flag(&mut signals, "truncated", cut);
    set(&mut signals, "turns", completions().count() as f64);
    signals
}

/// Whether a passage that was found holds an answer; none where nothing was searched.
pub(super) fn retrieved(record: &Record, references: &[String]) -> Option<bool> {
    let mut searched = false;
    let mut found = false;
    for call in &record.calls {
        match &call.reply {
            HostReply::Query(Ok(hits)) => {
                searched = true;
                found |= hits.iter().any(|hit| {
                    contains_answer(&format!("{}\n{}", hit.title, hit.text), references)
                });
            }
            HostReply::Open(Ok(document)) => {
                searched = true;
                found |= contains_answer(&document.text, references);
            }
            _ => {}
        }
    }
    searched.then_some(found)
}

pub(super) fn chess(signals: &mut Signals, puzzle: &Puzzle, played: &Played) {
    let moves = puzzle.solver_moves();
    flag(signals, &format!("solved-in-{moves}"), played.solved);
    flag(signals, "malformed", played.malformed > 0);
    flag(signals, "illegal", played.illegal > 0);
    flag(signals, "wrong-move", played.wrong.is_some());
    flag(signals, "harness-authored", played.authored);
    set(signals, "right-moves", played.right as f64);
}

/// All that the model wrote or scored highest, and where in it each act was.
pub(super) struct Written<'a> {
    text: String,
    acts: Vec<(&'a str, usize)>,
}

impl<'a> Written<'a> {
    pub(super) fn of(record: &'a Record) -> Self {
        let mut written = Self {
            text: String::new(),
            acts: Vec::new(),
        };
        for call in &record.calls {
            match (&call.call, &call.reply) {
                (_, HostReply::Complete(replies)) => {
                    for completion in replies.iter().flatten() {
                        written.add(&completion.text);
                        for call in &completion.tool_calls {
                            written.add(&call.arguments);
                        }
                    }
                }
                (HostCall::Score { continuations, .. }, HostReply::Score(Ok(scores))) => {
                    let best = scores
                        .iter()
                        .zip(continuations)
                        .max_by(|a, b| a.0.total_cmp(b.0));
                    if let Some((_, continuation)) = best {
                        written.add(continuation);
                    }
                }
                (HostCall::Act(text), HostReply::Act(Ok(_))) => {
                    written.acts.push((text, written.text.len()));
                }
                _ => {}
            }
        }
        written
    }

    fn add(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    pub(super) fn acts(&self) -> Vec<Act<'_>> {
        let acts = self.acts.iter();
        acts.map(|(text, until)| Act {
            text,
            written: &self.text[..*until],
        })
        .collect()
    }
}
