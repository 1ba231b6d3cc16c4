//! Real data sets: where each comes from, and how it becomes a task.

mod arithmetic;
mod chess;
mod math;
mod prepare;
mod searchqa;
#[cfg(test)]
mod tests;

use std::path::Path;

use thiserror::Error;

pub use prepare::Prepared;

/// A data set that can be made into a task.
#[derive(Clone, Copy, Debug)]
pub struct DataSet {
    /// The task's name.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// The files that it is made from.
    pub sources: &'static [Source],
    make: fn(&Path, &Path, &Wanted) -> Result<Prepared, DataError>,
}

/// A file of a data set.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// What it is called here.
    pub file: &'static str,
    /// Where it is published.
    pub address: &'static str,
    /// Of the file that this was written for; none where the publisher adds to it.
    pub sha256: Option<&'static str>,
    /// Its licence.
    pub licence: &'static str,
    /// Whether the task can be made without it.
    pub optional: bool,
}

/// How much of a data set is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// At most so many items.
    pub items: Option<usize>,
    /// Of what is drawn or generated.
    pub seed: u64,
}

/// Why a data set can't be made.
#[derive(Debug, Error)]
pub enum DataError {
    /// A file can't be read or written.
    #[error("`{path}`: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("`{path}`, {place}: {why}")]
    Format {
        /// The file.
        path: String,
        /// Where in it.
        place: String,
        /// What is wrong.
        why: String,
    },
}

/// All data sets.
pub const SETS: [DataSet; 4] = [
    DataSet {
        name: "math",
        what: "GSM8K, MATH-500 and SVAMP",
        sources: &math::SOURCES,
        make: math::make,
    },
    DataSet {
        name: "searchqa",
        what: "questions of XQuAD (English) and HotpotQA over their passages",
        sources: &searchqa::SOURCES,
        make: searchqa::make,
    },
    DataSet {
        name: "chess",
        what: "puzzles of the Lichess database",
        sources: &chess::SOURCES,
        make: chess::make,
    },
    DataSet {
        name: "arithmetic",
        what: "generated problems of arithmetic and algebra, of graded difficulty",
        sources: &[],
        make: arithmetic::make,
    },
];

impl DataSet {
    /// The data set of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        SETS.iter().find(|set| set.name == name)
    }

    /// Makes a task's folder from the files in another.
    ///
    /// # Errors
    /// When a file can't be read or written, or is not what it should be.
    pub fn make(&self, raw: &Path, task: &Path, wanted: &Wanted) -> Result<Prepared, DataError> {
        (self.make)(raw, task, wanted)
    }
}
