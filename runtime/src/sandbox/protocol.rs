//! What the host and a worker say to each other.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    Digest, LimitHit, Limits,
    contract::{Budget, Completion, Document, Execution, Hit, HostError, Prompt, Request, Turn},
    jail::Policy,
};

/// The first frame that a worker reads, before it is jailed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) policy: Policy,
    pub(crate) stack: u64,
    pub(crate) cache: PathBuf,
}

/// From the host to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    Start(Box<Start>),
    Reply { episode: u64, reply: HostReply },
    Cancel { episode: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) episode: u64,
    pub(crate) artifact: Digest,
    pub(crate) task: Task,
    /// Of the clock, of randomness and of ids that the guest sees.
    pub(crate) seed: u64,
    pub(crate) limits: Limits,
    /// Instantiate, measure, and end there.
    pub(crate) probe: bool,
}

/// A task as a guest sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Tells nothing but that two episodes differ.
    pub id: String,
    /// What there is to do.
    pub prompt: String,
    /// Further texts by name.
    #[serde(default)]
    pub fields: Vec<(String, String)>,
}

/// From a worker to the host. The host believes none of it: a guest may have taken the worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromWorker {
    /// The jail is closed and episodes can come; said once, first.
    Ready,
    Call {
        episode: u64,
        call: HostCall,
    },
    Done {
        episode: u64,
        ended: Ended,
    },
}

/// How an episode ended inside the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) how: How,
    pub(crate) used: WorkerUse,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    Answered(String),
    GaveUp(String),
    Limit(LimitHit),
    Trapped(String),
    Cancelled,
    /// The native code could not be loaded.
    NotLoaded(String),
}

/// The peaks that only the worker sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerUse {
    pub(crate) fuel_start: u64,
    pub(crate) fuel: u64,
    pub(crate) memory: u64,
    pub(crate) table_elements: u64,
    pub(crate) output_bytes: u64,
    pub(crate) output_writes: u64,
}

/// A call of a harness to the host, as it crosses the border and as the record keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the contract documents these calls")]
pub enum HostCall {
    Complete(Vec<Request>),
    Score {
        prompt: Prompt,
        continuations: Vec<String>,
    },
    CountTokens(String),
    ContextLimit,
    Remaining,
    Query {
        text: String,
        k: u32,
    },
    Open(String),
    Execute {
        language: String,
        source: String,
        stdin: String,
    },
    Observe,
    Act(String),
    Note {
        key: String,
        value: String,
    },
}

/// The reply to the [`HostCall`] of the same name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the contract documents these replies")]
pub enum HostReply {
    Complete(Vec<Result<Completion, HostError>>),
    Score(Result<Vec<f64>, HostError>),
    CountTokens(Result<u32, HostError>),
    ContextLimit(Result<u32, HostError>),
    Remaining(Budget),
    Query(Result<Vec<Hit>, HostError>),
    Open(Result<Document, HostError>),
    Execute(Result<Execution, HostError>),
    Observe(Result<String, HostError>),
    Act(Result<Turn, HostError>),
    Note(Result<(), HostError>),
}
