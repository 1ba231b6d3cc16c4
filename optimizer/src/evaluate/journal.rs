//! Results as they come: a file with one JSON object a line. The first line says of what.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use whale_runtime::{Limits, episode::Outcome};
use whale_tasks::{
    grade::{Grader, Verdict},
    task::Split,
};

use super::EvaluateError;

/// The version of the format.
pub(super) const FORMAT: u32 = 1;

/// What fixes the results of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Header {
    /// The version of the format.
    pub format: u32,
    /// The task's name.
    pub task: String,
    /// The digest of its splits.
    pub splits: String,
    /// The digest of its settings and items.
    pub content: String,
    /// Which split.
    pub split: Split,
    /// How many of its items.
    pub items: usize,
    /// How answers are graded.
    pub grader: Grader,
    /// The judge's model and prompt, if there is one.
    pub judge: Option<String>,
    /// The harness's digest.
    pub harness: String,
    /// The model, with the hashes of weights and adapter where they are known.
    pub model: String,
    /// The seed.
    pub seed: u64,
    /// Rollouts of each item.
    pub k: u32,
    /// The limits of each episode.
    pub limits: Limits,
}

/// One episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Entry {
    /// The item.
    pub item: String,
    /// What items that are not independent have in common.
    pub cluster: String,
    /// Which of the item's rollouts.
    pub rollout: u32,
    /// What the episode came to.
    pub outcome: Outcome,
    /// What the grader says; none where the episode is not scored.
    pub verdict: Option<Verdict>,
    /// What else is told of it, by name: shares and counts.
    pub signals: BTreeMap<String, f64>,
    /// What it used, by the name of the limit.
    pub used: BTreeMap<String, u64>,
    /// Milliseconds.
    pub took_ms: u64,
    /// How often it was tried.
    pub tries: usize,
}

impl Entry {
    /// Whether it counts. What failed for no fault of the harness does not.
    #[must_use]
    pub fn is_scored(&self) -> bool {
        !matches!(self.outcome, Outcome::Infrastructure { .. })
    }

    /// In [0, 1]; an episode without an answer scores 0.
    #[must_use]
    pub fn score(&self) -> f64 {
        self.verdict.as_ref().map_or(0.0, |verdict| verdict.score)
    }
}

/// A file of results. What an ended process left half-written is cut off and run again.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    entries: Vec<Entry>,
}

impl Journal {
    /// Opens a journal to go on with, or begins one.
    ///
    /// # Errors
    /// When the file can't be used, is written by another process, or belongs to another evaluation.
    pub fn open(path: &Path, header: &Header) -> Result<Self, EvaluateError> {
        let io = |error| EvaluateError::Io {
            path: path.display().to_string(),
            error,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(EvaluateError::Busy {
                    path: path.display().to_string(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(io)?;
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let mut journal = Self {
            file,
            path: path.to_owned(),
            entries: Vec::new(),
        };
        if whole == 0 && !text.is_empty() && !text.starts_with(b"{\"format\":") {
            return Err(journal.no_journal(1, "it is no line of JSON".to_owned()));
        }
        journal.file.set_len(whole as u64).map_err(io)?;
        journal.file.seek(SeekFrom::End(0)).map_err(io)?;
        for (index, line) in text[..whole].split(|byte| *byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            if index == 0 {
                let theirs: Header = serde_json::from_slice(line)
                    .map_err(|error| journal.no_journal(1, error.to_string()))?;
                journal.check(&theirs, header)?;
            } else {
                let entry: Entry = serde_json::from_slice(line)
                    .map_err(|error| journal.no_journal(index + 1, error.to_string()))?;
                journal.keep(entry);
            }
        }
        if whole == 0 {
            journal.line(header)?;
        }
        Ok(journal)
    }

    fn no_journal(&self, line: usize, why: String) -> EvaluateError {
        EvaluateError::NoJournal {
            path: self.path.display().to_string(),
            line,
            why,
        }
    }

    /// Names the first thing in which two headers differ.
    fn check(&self, theirs: &Header, ours: &Header) -> Result<(), EvaluateError> {
        if theirs == ours {
            return Ok(());
        }
        let value = |header: &Header| serde_json::to_value(header).unwrap_or_default();
        let (theirs, ours) = (value(theirs), value(ours));
        let empty = serde_json::Map::new();
        let fields = theirs.as_object().unwrap_or(&empty);
        let (what, theirs, ours) = fields
            .iter()
            .find_map(|(name, there)| {
                let here = &ours[name];
                (there != here).then(|| difference(name, there, here))
            })
            .unwrap_or_default();
        Err(EvaluateError::Other {
            path: self.path.display().to_string(),
            what,
            theirs,
            ours,
        })
    }

    /// An episode that was tried again takes the place of its failure.
    fn keep(&mut self, entry: Entry) {
        let failed = self
            .entries
            .iter()
            .rposition(|e| !e.is_scored() && e.item == entry.item && e.rollout == entry.rollout);
        match failed {
            Some(at) => self.entries[at] = entry,
            None => self.entries.push(entry),
        }
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), EvaluateError> {
        let mut line = serde_json::to_vec(value).unwrap_or_default();
        line.push(b'\n');
        // One write, so that an end in the middle leaves at most one half line.
        self.file
            .write_all(&line)
            .map_err(|error| EvaluateError::Io {
                path: self.path.display().to_string(),
                error,
            })
    }

    /// Adds an episode.
    pub(super) fn push(&mut self, entry: Entry) -> Result<(), EvaluateError> {
        self.line(&entry)?;
        self.keep(entry);
        Ok(())
    }

    /// Makes sure that all is on the disk.
    pub(super) fn sync(&self) -> Result<(), EvaluateError> {
        self.file.sync_data().map_err(|error| EvaluateError::Io {
            path: self.path.display().to_string(),
            error,
        })
    }

    /// The episodes, each once.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// The name and the two values of what differs; of a table, of its first row that does.
fn difference(name: &str, there: &Value, here: &Value) -> (String, String, String) {
    if let (Value::Object(there), Value::Object(here)) = (there, here) {
        for (inner, value) in there {
            if here.get(inner) != Some(value) {
                let other = here.get(inner).unwrap_or(&Value::Null);
                return difference(&format!("{name}.{inner}"), value, other);
            }
        }
    }
    (name.to_owned(), there.to_string(), here.to_string())
}
