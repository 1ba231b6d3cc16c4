//! What the makers of data sets share.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
};

use serde_json::Value;

use super::DataError;

/// What was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// How many items each source gave.
    pub items: Vec<(String, usize)>,
    /// How many passages there are to search, in `passages.jsonl`.
    pub passages: usize,
}

pub(super) fn io(path: &Path, error: std::io::Error) -> DataError {
    DataError::Io {
        path: path.display().to_string(),
        error,
    }
}

pub(super) fn wrong(path: &Path, place: &str, why: &dyn std::fmt::Display) -> DataError {
    DataError::Format {
        path: path.display().to_string(),
        place: place.to_owned(),
        why: why.to_string(),
    }
}

/// The objects of a JSONL file.
pub(super) fn objects(path: &Path) -> Result<Vec<Value>, DataError> {
    let file = fs::File::open(path).map_err(|error| io(path, error))?;
    let mut objects = Vec::new();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|error| io(path, error))?;
        if line.trim().is_empty() {
            continue;
        }
        let object = serde_json::from_str(&line)
            .map_err(|error| wrong(path, &format!("line {}", index + 1), &error))?;
        objects.push(object);
    }
    Ok(objects)
}

pub(super) fn document(path: &Path) -> Result<Value, DataError> {
    let text = fs::read(path).map_err(|error| io(path, error))?;
    serde_json::from_slice(&text).map_err(|error| wrong(path, "the document", &error))
}

/// The text of a field.
pub(super) fn text(
    path: &Path,
    place: &str,
    value: &Value,
    name: &str,
) -> Result<String, DataError> {
    match &value[name] {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => {
            let number = number.to_string();
            Ok(number.strip_suffix(".0").unwrap_or(&number).to_owned())
        }
        _ => Err(wrong(path, place, &format!("it has no `{name}`"))),
    }
}

/// Writes objects as lines.
pub(super) fn lines(path: &Path, objects: &[Value]) -> Result<(), DataError> {
    let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
    fs::write(path, text).map_err(|error| io(path, error))
}

pub(super) fn settings(task: &Path, text: &str) -> Result<(), DataError> {
    let path = task.join(crate::task::FILE);
    fs::write(&path, text).map_err(|error| io(&path, error))
}
