//! The record of an episode: one JSON document, whose format is in `docs/record.md`.

use std::{collections::BTreeMap, io, path::Path};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Spec;
use crate::{
    Digest, LimitHit,
    files::write_whole,
    ports::Tokens,
    sandbox::{HostCall, HostReply},
};

/// The version of the format.
pub const FORMAT: u32 = 1;

/// Everything that happened in one episode. Two episodes with one seed and a deterministic model
/// differ in [`Record::times`] alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Record {
    /// The version of the format, [`FORMAT`].
    pub format: u32,
    /// The harness.
    pub harness: HarnessId,
    /// The model that answered; never its address or key.
    pub model: String,
    /// What fixed the episode.
    pub spec: Spec,
    /// What the harness asked of the host, in order.
    pub calls: Vec<Call>,
    /// What it came to.
    pub outcome: Outcome,
    /// Peaks and totals, by the name of the limit that bounds them.
    pub used: BTreeMap<String, u64>,
    /// What the harness wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr: the message of a panic, for one.
    pub stderr: String,
    /// When, and how long.
    pub times: Times,
}

/// Which harness ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct HarnessId {
    /// Of the module as a file.
    pub digest: Digest,
    /// The version of the contract.
    pub contract: String,
}

/// One call to the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Call {
    /// What was asked.
    pub call: HostCall,
    /// What was answered.
    pub reply: HostReply,
    /// Of each request to the model: what it read and wrote, token by token, where that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<Option<Tokens>>,
}

/// What an episode came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Outcome {
    /// An answer, to be graded.
    Answered {
        /// The answer's text.
        answer: String,
    },
    /// The harness said that it has none; scores zero.
    GaveUp {
        /// What it said.
        message: String,
    },
    /// A limit ended it; scores zero.
    Limit {
        /// Which limit.
        hit: LimitHit,
    },
    /// It trapped; scores zero.
    Trapped {
        /// How.
        trap: String,
    },
    /// It killed a worker that ran nothing else; scores zero.
    KilledWorker {
        /// How the worker died.
        how: String,
    },
    /// Not the harness's fault: run again, never scored.
    Infrastructure {
        /// What went wrong.
        message: String,
    },
}

impl Outcome {
    /// Whether the harness is to blame for there being no answer.
    #[must_use]
    pub fn is_harness_error(&self) -> bool {
        !matches!(self, Self::Answered { .. } | Self::Infrastructure { .. })
    }
}

/// When an episode ran; the one part of a record that two equal episodes differ in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Times {
    /// Seconds since 1970.
    pub started: u64,
    /// Microseconds from start to end.
    pub took: u64,
    /// Of each call: microseconds from the start of the episode, and how long it took.
    pub calls: Vec<(u64, u64)>,
    /// How often it was started: more than once when a worker died under it.
    pub starts: u32,
}

/// Why a record could not be read or written.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The file could not be read or written.
    #[error("`{path}`: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// It is no record.
    #[error("`{path}` is no record of an episode: {error}")]
    Format {
        /// The file.
        path: String,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// It is a record of another version.
    #[error("`{path}` has format {found}; this host reads {FORMAT}")]
    Version {
        /// The file.
        path: String,
        /// Its version.
        found: u32,
    },
}

impl Record {
    /// Writes the record whole or not at all.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let failed = |error| RecordError::Io {
            path: path.display().to_string(),
            error,
        };
        let mut json = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        json.push(b'\n');
        write_whole(path, &json).map_err(failed)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When the file can't be read or is no record of this version.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }

        let name = || path.display().to_string();
        let json = std::fs::read(path).map_err(|error| RecordError::Io {
            path: name(),
            error,
        })?;
        let no_record = |error| RecordError::Format {
            path: name(),
            error,
        };
        let Version { format } = serde_json::from_slice(&json).map_err(no_record)?;
        if format != FORMAT {
            return Err(RecordError::Version {
                path: name(),
                found: format,
            });
        }
        serde_json::from_slice(&json).map_err(no_record)
    }
}
