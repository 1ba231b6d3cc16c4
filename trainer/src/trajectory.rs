//! What a model wrote in an episode, and files of it.
//!
//! A file has one JSON object a line. The first line says under what its trajectories came about;
//! a line that a killed process left half-written is cut off.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::TrainError;

/// The version of the format.
pub const FORMAT: u32 = 1;

/// One episode, as far as training is concerned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Trajectory {
    /// The item.
    pub item: String,
    /// Which of the item's rollouts.
    pub rollout: u32,
    /// What the verifier said, in [0, 1].
    pub reward: f64,
    /// The model's calls, in order.
    pub calls: Vec<ModelCall>,
}

/// One call of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ModelCall {
    /// The token ids that it read: the whole context.
    pub prompt: Vec<u32>,
    /// The ids that it sampled, the one that ended its turn included.
    pub sampled: Vec<u32>,
    /// The natural logarithm of each one's probability under the sampler, before temperature and
    /// truncation; none where the sampler does not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_probabilities: Vec<f32>,
    /// How many tokens the server says it read and wrote.
    pub counted: (u32, u32),
    /// The sampled ids say another text than the one that came with them: another tokenizer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_text: bool,
}

/// Under what trajectories came about. Files with other headers do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Header {
    /// The version of the format.
    pub format: u32,
    /// The hash of the model's files, or what a server calls it.
    pub model: String,
    /// What tells the tokenizer from others.
    pub tokenizer: String,
    /// The hash of the adapter, where there was one.
    pub adapter: Option<String>,
    /// The harness's digest.
    pub harness: String,
    /// The digest of the task's settings and items.
    pub task: String,
    /// Fixes what was random.
    pub seed: u64,
}

impl Header {
    /// Refuses a header that is not ours, by the first thing in which they differ.
    ///
    /// # Errors
    /// When they differ.
    pub fn check(&self, theirs: &Self, path: &Path) -> Result<(), TrainError> {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let pairs = [
            ("format", self.format.to_string(), theirs.format.to_string()),
            (
                "tokenizer",
                self.tokenizer.clone(),
                theirs.tokenizer.clone(),
            ),
            ("model", self.model.clone(), theirs.model.clone()),
            ("adapter", text(&self.adapter), text(&theirs.adapter)),
            ("harness", self.harness.clone(), theirs.harness.clone()),
            ("task", self.task.clone(), theirs.task.clone()),
            ("seed", self.seed.to_string(), theirs.seed.to_string()),
        ];
        match pairs.into_iter().find(|(_, ours, theirs)| ours != theirs) {
            None => Ok(()),
            Some((what, ours, theirs)) => Err(TrainError::Other {
                path: path.display().to_string(),
                what,
                theirs,
                ours,
            }),
        }
    }
}

/// A file of trajectories that is written, or goes on being written.
#[derive(Debug)]
pub struct Trajectories {
    file: File,
    path: PathBuf,
    all: Vec<Trajectory>,
}

impl Trajectories {
    /// Opens a file to go on with, or begins one.
    ///
    /// # Errors
    /// When the file can't be used, is written by another process, is damaged, or has another
    /// header.
    pub fn open(path: &Path, header: &Header) -> Result<Self, TrainError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(TrainError::io(path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(TrainError::format(path, "another process writes it"));
            }
            Err(TryLockError::Error(error)) => return Err(TrainError::io(path)(error)),
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(TrainError::io(path))?;
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let all = if whole == 0 {
            Vec::new()
        } else {
            let (theirs, all) = parse(path, &text[..whole])?;
            header.check(&theirs, path)?;
            all
        };
        file.set_len(whole as u64).map_err(TrainError::io(path))?;
        file.seek(SeekFrom::End(0)).map_err(TrainError::io(path))?;
        let mut trajectories = Self {
            file,
            path: path.to_owned(),
            all,
        };
        if whole == 0 {
            trajectories.line(header)?;
        }
        Ok(trajectories)
    }

    /// Reads a file that is complete.
    ///
    /// # Errors
    /// When it can't be read, or is not in its format.
    pub fn read(path: &Path) -> Result<(Header, Vec<Trajectory>), TrainError> {
        let text = std::fs::read(path).map_err(TrainError::io(path))?;
        parse(path, &text)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), TrainError> {
        let mut line =
            serde_json::to_vec(value).map_err(|error| TrainError::format(&self.path, error))?;
        line.push(b'\n');
        // One write, so that an end in the middle leaves at most one half line.
        self.file
            .write_all(&line)
            .map_err(TrainError::io(&self.path))
    }

    /// Adds one.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn push(&mut self, trajectory: Trajectory) -> Result<(), TrainError> {
        self.line(&trajectory)?;
        self.all.push(trajectory);
        Ok(())
    }

    /// Makes sure that all is on the disk.
    ///
    /// # Errors
    /// When it can't be.
    pub fn sync(&self) -> Result<(), TrainError> {
        self.file.sync_data().map_err(TrainError::io(&self.path))
    }

    /// All of them, in the order in which they were added.
    #[must_use]
    pub fn all(&self) -> &[Trajectory] {
        &self.all
    }
}

fn parse(path: &Path, text: &[u8]) -> Result<(Header, Vec<Trajectory>), TrainError> {
    let wrong = |line: usize, error: serde_json::Error| TrainError::Format {
        path: path.display().to_string(),
        line: Some(line),
        message: error.to_string(),
    };
    let mut lines = text
        .split(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty());
    let (_, first) = lines
        .next()
        .ok_or_else(|| TrainError::format(path, "it is empty"))?;
    let header: Header = serde_json::from_slice(first).map_err(|error| wrong(1, error))?;
    if header.format != FORMAT {
        return Err(TrainError::format(
            path,
            format!(
                "its format is {}; this program reads {FORMAT}",
                header.format
            ),
        ));
    }
    let all = lines
        .map(|(index, line)| serde_json::from_slice(line).map_err(|error| wrong(index + 1, error)))
        .collect::<Result<_, _>>()?;
    Ok((header, all))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn header() -> Header {
        Header {
            format: FORMAT,
            model: "weights".to_owned(),
            tokenizer: "tokenizer".to_owned(),
            adapter: None,
            harness: "harness".to_owned(),
            task: "task".to_owned(),
            seed: 0,
        }
    }

    pub(crate) fn trajectory(item: &str, reward: f64, calls: &[(&[u32], &[u32])]) -> Trajectory {
        let calls = calls.iter().map(|(prompt, sampled)| ModelCall {
            prompt: prompt.to_vec(),
            sampled: sampled.to_vec(),
            log_probabilities: vec![-0.5; sampled.len()],
            counted: (prompt.len() as u32, sampled.len() as u32),
            other_text: false,
        });
        Trajectory {
            item: item.to_owned(),
            rollout: 0,
            reward,
            calls: calls.collect(),
        }
    }

    #[test]
    fn a_file_goes_on_after_half_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trajectories.jsonl");
        let one = trajectory("a", 1.0, &[(&[1, 2], &[3])]);
        let mut file = Trajectories::open(&path, &header()).unwrap();
        file.push(one.clone()).unwrap();
        assert!(
            Trajectories::open(&path, &header()).is_err(),
            "it is locked"
        );
        drop(file);
        let mut text = std::fs::read(&path).unwrap();
        let whole = text.clone();
        text.extend(b"{\"item\":\"b\",\"rol");
        std::fs::write(&path, &text).unwrap();
        let file = Trajectories::open(&path, &header()).unwrap();
        assert_eq!(file.all(), [one]);
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn another_tokenizer_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trajectories.jsonl");
        drop(Trajectories::open(&path, &header()).unwrap());
        let other = Header {
            tokenizer: "another".to_owned(),
            ..header()
        };
        let error = Trajectories::open(&path, &other).unwrap_err().to_string();
        assert!(
            error.contains("its tokenizer is tokenizer, here it is another"),
            "{error}"
        );
    }

    #[test]
    fn a_damaged_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trajectories.jsonl");
        let mut text = serde_json::to_vec(&header()).unwrap();
        text.extend(b"\n{\"item\": 3}\n");
        std::fs::write(&path, text).unwrap();
        let error = Trajectories::read(&path).unwrap_err().to_string();
        assert!(error.contains("line 2:"), "{error}");
    }
}
