//! Runs a recorded episode again, without a model, and says whether it was the same.

use async_trait::async_trait;
use thiserror::Error;
use tokio::time::Instant;

use super::{Call, Outcome, Record, Responder, Response, Stop, run};
use crate::sandbox::{Harness, HostCall, Sandbox, SandboxError};

/// How a replay differs from its record.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Difference {
    /// The record is of an episode that can't come out the same twice.
    #[error("the episode was ended by {0}, which does not depend on the harness alone")]
    NotReplayable(&'static str),
    /// The harness is another one.
    #[error("the record is of harness {recorded}, not of {given}")]
    Harness {
        /// The digest in the record.
        recorded: String,
        /// The digest of the module that was given.
        given: String,
    },
    /// A call was another one, or one too many.
    #[error("{0}")]
    Call(String),
    /// The harness made fewer calls.
    #[error("it made {made} calls; the record has {recorded}")]
    FewerCalls {
        /// By the replay.
        made: usize,
        /// By the record.
        recorded: usize,
    },
    /// It ended otherwise.
    #[error("it ended with {replayed}; the record has {recorded}")]
    Outcome {
        /// In the replay.
        replayed: String,
        /// In the record.
        recorded: String,
    },
    /// It burnt another amount of fuel.
    #[error("it burnt {replayed} fuel; the record has {recorded}")]
    Fuel {
        /// In the replay.
        replayed: u64,
        /// In the record.
        recorded: u64,
    },
}

/// Runs the episode of a record again and compares calls, outcome, output and fuel.
///
/// # Errors
/// When the sandbox fails. The inner error is the first difference.
pub async fn replay(
    sandbox: &Sandbox,
    harness: &Harness,
    record: &Record,
) -> Result<Result<(), Difference>, SandboxError> {
    if let Some(cause) = irreproducible(&record.outcome) {
        return Ok(Err(Difference::NotReplayable(cause)));
    }
    if harness.digest != record.harness.digest {
        return Ok(Err(Difference::Harness {
            recorded: record.harness.digest.to_string(),
            given: harness.digest.to_string(),
        }));
    }
    let mut recorded = Recorded {
        calls: &record.calls,
        next: 0,
        diverged: None,
    };
    let spec = record.spec.clone();
    let again = run(sandbox, harness, spec, record.model.clone(), &mut recorded).await?;
    Ok(match recorded.diverged.take() {
        Some(difference) => Err(Difference::Call(difference)),
        None => compare(record, &again),
    })
}

fn irreproducible(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Limit { hit } if hit.limit == "wall" => Some("its wall clock"),
        Outcome::KilledWorker { .. } => Some("the death of its worker"),
        Outcome::Infrastructure { .. } => Some("a failure of the host or the model's server"),
        _ => None,
    }
}

fn compare(record: &Record, again: &Record) -> Result<(), Difference> {
    if again.calls.len() != record.calls.len() {
        let (made, recorded) = (again.calls.len(), record.calls.len());
        return Err(Difference::FewerCalls { made, recorded });
    }
    let ending = |record: &Record| {
        (
            record.outcome.clone(),
            record.stdout.clone(),
            record.stderr.clone(),
        )
    };
    if ending(again) != ending(record) {
        let show = |record: &Record| format!("{:?}", ending(record));
        return Err(Difference::Outcome {
            replayed: show(again),
            recorded: show(record),
        });
    }
    let fuel = |record: &Record| record.used.get("fuel").copied().unwrap_or_default();
    if fuel(again) != fuel(record) {
        return Err(Difference::Fuel {
            replayed: fuel(again),
            recorded: fuel(record),
        });
    }
    Ok(())
}

struct Recorded<'a> {
    calls: &'a [Call],
    next: usize,
    diverged: Option<String>,
}

#[async_trait]
impl Responder for Recorded<'_> {
    async fn respond(
        &mut self,
        number: usize,
        call: &HostCall,
        _deadline: Instant,
    ) -> Result<Response, Stop> {
        let expected = self.calls.get(number);
        match expected.filter(|expected| expected.call == *call) {
            Some(expected) => {
                self.next = number + 1;
                Ok(Response {
                    reply: expected.reply.clone(),
                    tokens: expected.tokens.clone(),
                })
            }
            None => {
                let recorded = expected.map_or("none".to_owned(), |call| brief(&call.call));
                let difference = format!(
                    "call {} is {}; the record has {recorded}",
                    number + 1,
                    brief(call)
                );
                self.diverged = Some(difference.clone());
                Err(Stop::Diverged(difference))
            }
        }
    }

    fn used(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn restart(&mut self) {
        self.next = 0;
        self.diverged = None;
    }
}

/// The start of a call, for a message.
fn brief(call: &HostCall) -> String {
    let mut text = format!("{call:?}");
    if text.chars().count() > 160 {
        text = text.chars().take(160).chain("…".chars()).collect();
    }
    text
}
