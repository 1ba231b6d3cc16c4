//! Runs an episode in a worker and answers its calls, until it ends or its time is up.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::{Instant, timeout, timeout_at};

use super::{Call, FORMAT, HarnessId, Outcome, Record, Responder, Spec, Stop, Times};
use crate::{
    Limits, contract,
    sandbox::{
        Ended, Event, Harness, How, Sandbox, SandboxError, Start, Ticket, ToWorker, WorkerUse,
    },
};

/// How long a cancelled episode may take to stop before its worker is killed: a guest that is in
/// the middle of one long instruction does not hear.
const GRACE: Duration = Duration::from_secs(2);

/// Runs one episode.
///
/// # Errors
/// When the sandbox itself fails; what the harness does is the record's outcome.
pub async fn run(
    sandbox: &Sandbox,
    harness: &Harness,
    spec: Spec,
    model: String,
    responder: &mut dyn Responder,
) -> Result<Record, SandboxError> {
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let begin = Instant::now();
    let deadline = begin + Duration::from_millis(spec.limits.wall);

    let mut attempt = Attempt::new(begin, deadline);
    let mut end = attempt
        .run(sandbox.ticket(harness).await?, harness, &spec, responder)
        .await?;
    let mut starts = 1;
    if matches!(end, End::Died(_)) {
        // Another episode may have killed the worker: alone, only this one can.
        responder.restart();
        attempt = Attempt::new(begin, deadline);
        end = attempt
            .run(sandbox.solo_ticket().await?, harness, &spec, responder)
            .await?;
        starts = 2;
    }
    let (outcome, ended) = match end {
        End::Ended(ended) => (outcome(&ended.how, &spec.limits), Some(ended)),
        End::Wall(ended) => (
            Outcome::Limit {
                hit: spec.limits.hit("wall"),
            },
            ended,
        ),
        End::Stopped(Stop::Infrastructure(message), ended) => {
            (Outcome::Infrastructure { message }, ended)
        }
        End::Stopped(Stop::Diverged(message), ended) => (
            Outcome::Infrastructure {
                message: format!("not a replay: {message}"),
            },
            ended,
        ),
        End::Died(how) => {
            sandbox.blame(harness);
            (Outcome::KilledWorker { how }, None)
        }
    };
    let (worker, stdout, stderr) = ended.map_or_else(
        || (WorkerUse::default(), String::new(), String::new()),
        |ended| (ended.used, ended.stdout, ended.stderr),
    );
    let took = micros(begin.elapsed());
    let times = Times {
        started,
        took,
        calls: attempt.times,
        starts,
    };
    Ok(Record {
        format: FORMAT,
        harness: HarnessId {
            digest: harness.digest.clone(),
            contract: contract::VERSION.to_owned(),
        },
        model,
        used: used(&worker, responder),
        spec,
        calls: attempt.calls,
        outcome,
        stdout,
        stderr,
        times,
    })
}

/// What a harness costs before its entry point is called.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Fuel that its start burns.
    pub fuel: u64,
    /// Linear memory that it has then, in bytes.
    pub memory: u64,
    /// Table elements that it has then.
    pub table_elements: u64,
}

/// Instantiates a harness and measures it, without calling its entry point.
///
/// # Errors
/// When the sandbox fails; the inner error is the harness's own.
pub async fn measure(
    sandbox: &Sandbox,
    harness: &Harness,
    limits: &Limits,
) -> Result<Result<Measured, Outcome>, SandboxError> {
    let mut ticket = sandbox.ticket(harness).await?;
    let spec = Spec {
        item: String::new(),
        rollout: 0,
        seed: 0,
        prompt: String::new(),
        fields: Vec::new(),
        limits: limits.clone(),
    };
    ticket.send(&ToWorker::Start(Box::new(start(
        &ticket, harness, &spec, true,
    ))))?;
    let wall = Duration::from_millis(limits.wall);
    match timeout(wall, ticket.events.recv()).await {
        Ok(Some(Event::Done(Ended {
            how: How::Answered(_),
            used,
            ..
        }))) => Ok(Ok(Measured {
            fuel: used.fuel_start,
            memory: used.memory,
            table_elements: used.table_elements,
        })),
        Ok(Some(Event::Done(ended))) => Ok(Err(outcome(&ended.how, limits))),
        Ok(Some(Event::Died(how))) => Ok(Err(Outcome::KilledWorker { how })),
        Ok(Some(Event::Call(_)) | None) => Err(SandboxError::Worker(
            "a worker spoke out of turn".to_owned(),
        )),
        Err(_) => {
            ticket.kill_worker("a harness did not start in time").await;
            Ok(Err(Outcome::Limit {
                hit: limits.hit("wall"),
            }))
        }
    }
}

fn start(ticket: &Ticket<'_>, harness: &Harness, spec: &Spec, probe: bool) -> Start {
    Start {
        episode: ticket.episode,
        artifact: harness.artifact.clone(),
        task: spec.task(),
        seed: spec.guest_seed(),
        limits: spec.limits.clone(),
        probe,
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn outcome(how: &How, limits: &Limits) -> Outcome {
    match how.clone() {
        How::Answered(answer) => Outcome::Answered { answer },
        How::GaveUp(message) => Outcome::GaveUp { message },
        How::Limit(hit) => Outcome::Limit { hit },
        How::Trapped(trap) => Outcome::Trapped { trap },
        How::Cancelled => Outcome::Limit {
            hit: limits.hit("wall"),
        },
        How::NotLoaded(message) => Outcome::Infrastructure {
            message: format!("the native code could not be loaded: {message}"),
        },
    }
}

fn used(worker: &WorkerUse, responder: &dyn Responder) -> BTreeMap<String, u64> {
    let WorkerUse {
        fuel_start,
        fuel,
        memory,
        table_elements,
        output_bytes,
        output_writes,
    } = *worker;
    let worker = [
        ("fuel-start", fuel_start),
        ("fuel", fuel),
        ("memory", memory),
        ("table-elements", table_elements),
        ("output-bytes", output_bytes),
        ("output-writes", output_writes),
    ];
    let all = worker.into_iter().chain(responder.used());
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// How an attempt ended.
enum End {
    Ended(Ended),
    Wall(Option<Ended>),
    Stopped(Stop, Option<Ended>),
    Died(String),
}

/// One start of an episode, and what it has recorded.
struct Attempt {
    begin: Instant,
    deadline: Instant,
    calls: Vec<Call>,
    times: Vec<(u64, u64)>,
}

impl Attempt {
    fn new(begin: Instant, deadline: Instant) -> Self {
        Self {
            begin,
            deadline,
            calls: Vec::new(),
            times: Vec::new(),
        }
    }

    async fn run(
        &mut self,
        mut ticket: Ticket<'_>,
        harness: &Harness,
        spec: &Spec,
        responder: &mut dyn Responder,
    ) -> Result<End, SandboxError> {
        ticket.send(&ToWorker::Start(Box::new(start(
            &ticket, harness, spec, false,
        ))))?;
        loop {
            let event = match timeout_at(self.deadline, ticket.events.recv()).await {
                Ok(Some(event)) => event,
                Ok(None) => Event::Died("its worker is gone".to_owned()),
                Err(_) => return Ok(End::Wall(cancel(&mut ticket).await)),
            };
            let call = match event {
                Event::Call(call) => call,
                Event::Done(ended) => return Ok(End::Ended(ended)),
                Event::Died(how) => return Ok(End::Died(how)),
            };
            let asked = self.begin.elapsed();
            let answer = responder.respond(self.calls.len(), &call, self.deadline);
            // Waiting in the host is seen by no guest's meter: the episode's clock ends it here.
            let response = tokio::select! {
                response = timeout_at(self.deadline, answer) => response,
                event = ticket.events.recv() => {
                    return Ok(End::Died(ended_early(&ticket, event).await));
                }
            };
            let response = match response {
                Ok(Ok(response)) => response,
                // A port that gives up at the episode's end has not failed.
                Ok(Err(Stop::Infrastructure(_))) if Instant::now() >= self.deadline => {
                    return Ok(End::Wall(cancel(&mut ticket).await));
                }
                Ok(Err(stop)) => return Ok(End::Stopped(stop, cancel(&mut ticket).await)),
                Err(_) => return Ok(End::Wall(cancel(&mut ticket).await)),
            };
            let reply = ToWorker::Reply {
                episode: ticket.episode,
                reply: response.reply,
            };
            ticket.send(&reply)?;
            if let ToWorker::Reply { reply, .. } = reply {
                self.calls.push(Call {
                    call,
                    reply,
                    tokens: response.tokens,
                });
                self.times
                    .push((micros(asked), micros(self.begin.elapsed() - asked)));
            }
        }
    }
}

/// What a worker says while its guest waits for an answer: only that it is gone. One that says
/// anything else is no longer ours.
async fn ended_early(ticket: &Ticket<'_>, event: Option<Event>) -> String {
    match event {
        Some(Event::Died(how)) => how,
        None => "its worker is gone".to_owned(),
        Some(Event::Call(_) | Event::Done(_)) => {
            let how = "its worker spoke out of turn";
            ticket.kill_worker(how).await;
            how.to_owned()
        }
    }
}

/// Stops an episode; what it had used and written is kept if its worker still says so.
async fn cancel(ticket: &mut Ticket<'_>) -> Option<Ended> {
    ticket
        .send(&ToWorker::Cancel {
            episode: ticket.episode,
        })
        .ok()?;
    let ended = timeout(GRACE, async {
        while let Some(event) = ticket.events.recv().await {
            match event {
                Event::Done(ended) => return Some(ended),
                Event::Died(_) => return None,
                Event::Call(_) => {}
            }
        }
        None
    })
    .await;
    match ended {
        Ok(ended) => ended,
        Err(_) => {
            ticket
                .kill_worker("an episode ran past its wall clock and did not stop")
                .await;
            None
        }
    }
}
