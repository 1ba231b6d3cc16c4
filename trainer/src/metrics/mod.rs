//! What is told of each step, for people and for programs.

mod tensorboard;

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

pub use tensorboard::Events;

use crate::{TrainError, files};

/// A file with one JSON object a line, of which each has a `step`.
#[derive(Debug)]
pub struct Rows {
    path: PathBuf,
}

impl Rows {
    /// Opens a file to go on with after `steps` steps: rows of later ones, and what was left
    /// half-written, are removed.
    ///
    /// # Errors
    /// When the file can't be used.
    pub fn open(path: &Path, steps: u64) -> Result<Self, TrainError> {
        let rows = Self {
            path: path.to_owned(),
        };
        if path.exists() {
            let text = fs::read_to_string(path).map_err(TrainError::io(path))?;
            let early = |line: &&str| {
                let row: Result<serde_json::Value, _> = serde_json::from_str(line);
                row.is_ok_and(|row| row["step"].as_u64().is_some_and(|step| step <= steps))
            };
            let kept: String = text
                .lines()
                .filter(early)
                .map(|line| format!("{line}\n"))
                .collect();
            if kept != text {
                files::write_whole(path, kept.as_bytes())?;
            }
        }
        Ok(rows)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn push(&self, row: &impl Serialize) -> Result<(), TrainError> {
        let mut line =
            serde_json::to_vec(row).map_err(|error| TrainError::format(&self.path, error))?;
        line.push(b'\n');
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .map_err(TrainError::io(&self.path))?;
        file.write_all(&line).map_err(TrainError::io(&self.path))
    }

    /// All rows.
    ///
    /// # Errors
    /// When the file can't be read, or a row is of another form.
    pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, TrainError> {
        let text = fs::read_to_string(path).map_err(TrainError::io(path))?;
        let row = |(index, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| TrainError::Format {
                path: path.display().to_string(),
                line: Some(index + 1),
                message: error.to_string(),
            })
        };
        text.lines().enumerate().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn rows_of_steps_that_are_taken_again_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let rows = Rows::open(&path, 0).unwrap();
        for step in 1..4 {
            rows.push(&json!({"step": step})).unwrap();
        }
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"step\": 2").unwrap();
        Rows::open(&path, 2).unwrap();
        let rows: Vec<Value> = Rows::read(&path).unwrap();
        assert_eq!(rows, [json!({"step": 1}), json!({"step": 2})]);
    }
}
