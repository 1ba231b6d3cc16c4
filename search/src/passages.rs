//! Files of passages: one JSON object a line.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
};

use serde::Deserialize;

use crate::SearchError;

/// A longer line is no passage.
const LONGEST_LINE: u64 = 16 << 20;

/// A text that can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Its name; no two have the same.
    pub id: String,
    /// What it is about.
    pub title: String,
    /// What it says.
    pub text: String,
}

/// A line: either with `title` and `text`, or with `contents` as Search-R1 has it.
#[derive(Deserialize)]
struct Line {
    id: Option<serde_json::Value>,
    #[serde(default)]
    title: String,
    text: Option<String>,
    contents: Option<String>,
}

/// Reads passages one by one.
///
/// # Errors
/// When the file can't be read, a line is no passage, or `take` fails.
pub fn read(
    path: &Path,
    mut take: impl FnMut(Passage) -> Result<(), SearchError>,
) -> Result<(), SearchError> {
    let name = || path.display().to_string();
    let failed = |error| SearchError::Io {
        path: name(),
        error,
    };
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = reader
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line);
        let read = read.map_err(failed)?;
        if read == 0 {
            return Ok(());
        }
        let wrong = |why: String| SearchError::Line {
            path: name(),
            line: number,
            why,
        };
        if read as u64 == LONGEST_LINE {
            return Err(wrong(format!("it is longer than {LONGEST_LINE} bytes")));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let parsed: Line =
            serde_json::from_slice(&line).map_err(|error| wrong(error.to_string()))?;
        take(parsed.passage(number).map_err(wrong)?)?;
    }
    Ok(())
}

impl Line {
    fn passage(self, number: usize) -> Result<Passage, String> {
        let id = match self.id {
            Some(serde_json::Value::String(id)) => id,
            Some(serde_json::Value::Number(id)) => id.to_string(),
            Some(other) => return Err(format!("its id is {other}")),
            None => (number - 1).to_string(),
        };
        let (title, text) = match (self.text, self.contents) {
            (Some(text), _) => (self.title, text),
            (None, Some(contents)) => titled(&contents),
            (None, None) => return Err("it has neither `text` nor `contents`".to_owned()),
        };
        Ok(Passage { id, title, text })
    }
}

/// `"Title"\ntext`, as Search-R1 writes both into one.
pub(crate) fn titled(contents: &str) -> (String, String) {
    match contents.split_once('\n') {
        Some((title, text)) => (title.trim().trim_matches('"').to_owned(), text.to_owned()),
        None => (String::new(), contents.to_owned()),
    }
}
