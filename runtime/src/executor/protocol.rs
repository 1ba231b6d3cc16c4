//! What the host and a process of the executor say to each other.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{contract::Status, jail::Policy};

/// The first frame: read before the jail is closed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) policy: Policy,
    pub(super) artifact: PathBuf,
}

/// One program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) source: String,
    pub(super) stdin: String,
    pub(super) seed: u64,
    pub(super) memory: u64,
    pub(super) output: u64,
}

/// What comes back: output as it is printed, so that it is kept when the process is killed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// The interpreter is loaded.
    Ready,
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Ended(Status),
}
