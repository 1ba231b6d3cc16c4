//! Why a task can't be used.

use thiserror::Error;

use super::{Place, Split};

/// Why a task can't be used.
#[derive(Debug, Error)]
pub enum TaskError {
    /// A file can't be read or written.
    #[error("`{path}`: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A setting is wrong.
    #[error("`{path}`: {why}")]
    Settings {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A file's format is not known by its name.
    #[error("`{file}` ends neither in `.jsonl` nor in `.csv` nor in `.parquet`")]
    Format {
        /// The file.
        file: String,
    },
    /// A row can't be read.
    #[error("{place}: {why}")]
    Row {
        /// Where.
        place: Place,
        /// What is wrong.
        why: String,
    },
    /// A row has no such column.
    #[error("{place} has no column `{name}`, which would be its {meaning}; it has `{known}`")]
    Column {
        /// Where.
        place: Place,
        /// The column.
        name: String,
        /// What it would mean.
        meaning: &'static str,
        /// The columns that are there.
        known: String,
    },
    /// An item is wrong.
    #[error("{place}: {what}")]
    Item {
        /// Where.
        place: Place,
        /// What is wrong.
        what: String,
    },
    /// There are no items at all.
    #[error("the task `{task}` has no items")]
    NoItems {
        /// Its name.
        task: String,
    },
    /// A split has no items.
    #[error("the split `{split}` of the task `{task}` is empty")]
    Empty {
        /// Its name.
        task: String,
        /// The split.
        split: Split,
    },
    /// A split can't be filled.
    #[error("the split `{split}` wants {wanted} items and {found} are left for it")]
    TooFew {
        /// The split.
        split: Split,
        /// What is left for it.
        found: usize,
        /// What `splits` asks for.
        wanted: usize,
    },
    /// The splits are not those of the lock.
    #[error(
        "the splits are not those that `{path}` keeps ({sizes}; now {now}): items or settings have changed"
    )]
    Moved {
        /// The lock.
        path: String,
        /// The sizes that it keeps.
        sizes: String,
        /// The sizes now.
        now: String,
    },
}
