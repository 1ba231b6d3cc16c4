//! The task's search index.

use crate::{Result, bindings::whale::harness::search as host};

pub use host::{Document, Hit};

/// The `k` best passages for a query, best first.
///
/// # Errors
/// `unavailable` where the task has no index.
pub fn query(text: &str, k: u32) -> Result<Vec<Hit>> {
    Ok(host::query(text, k)?)
}

/// The whole document with this id.
///
/// # Errors
/// `invalid` when no document has this id.
pub fn open(id: &str) -> Result<Document> {
    Ok(host::open(id)?)
}
