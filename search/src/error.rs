//! Why passages can't be indexed or searched.

use thiserror::Error;

/// Why passages can't be indexed or searched.
#[derive(Debug, Error)]
pub enum SearchError {
    /// A file can't be read or written.
    #[error("`{path}`: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A line is no passage.
    #[error("line {line} of `{path}` is no passage: {why}")]
    Line {
        /// The file.
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// There is nothing to index.
    #[error("`{path}` holds no passages")]
    Empty {
        /// The file.
        path: String,
    },
    /// A parameter is out of its bounds.
    #[error("`{name}` is {value}; it lies between 0 and {most}")]
    Parameter {
        /// Its name.
        name: &'static str,
        /// What was given.
        value: f64,
        /// The bound.
        most: f64,
    },
    /// A folder is no index.
    #[error("`{path}` is no index of passages: {why}")]
    NoIndex {
        /// The folder.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A folder holds no encoder.
    #[error("`{path}` is no encoder of sentences: {why}")]
    NoEncoder {
        /// The folder.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// An encoder failed.
    #[error("the encoder failed: {why}")]
    Encoder {
        /// How.
        why: String,
    },
    /// The index can't be written or read.
    #[error("the index `{path}`: {error}")]
    Index {
        /// The folder.
        path: String,
        /// What tantivy said.
        error: tantivy::TantivyError,
    },
    /// A server's address can't be one.
    #[error("`{address}` is no address of a server: {why}")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong.
        why: String,
    },
}
