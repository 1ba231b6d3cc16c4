//! Why an evaluation can't go on.

use thiserror::Error;
use whale_runtime::{episode::RecordError, sandbox::SandboxError};

/// Why an evaluation can't go on.
#[derive(Debug, Error)]
pub enum EvaluateError {
    /// The sandbox fails as a whole.
    #[error(transparent)]
    Sandbox(SandboxError),
    /// A trace can't be written.
    #[error(transparent)]
    Trace(RecordError),
    /// An item has no reference.
    #[error("the item `{item}` has no reference")]
    NoReference {
        /// The item.
        item: String,
    },
    /// A journal or a cache can't be read or written.
    #[error("`{path}`: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file is no journal.
    #[error("line {line} of `{path}` does not belong to the results of an evaluation: {why}")]
    NoJournal {
        /// The file.
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// A journal belongs to another evaluation.
    #[error("`{path}` holds the results of another evaluation: its {what} is {theirs}, not {ours}")]
    Other {
        /// The file.
        path: String,
        /// What differs.
        what: String,
        /// There.
        theirs: String,
        /// Here.
        ours: String,
    },
    /// Someone else writes to it.
    #[error("`{path}` is being written by another process")]
    Busy {
        /// The file.
        path: String,
    },
    /// A judge's prompt lacks a place.
    #[error("the judge's prompt has no `{{{name}}}`")]
    Prompt {
        /// The place.
        name: &'static str,
    },
}
