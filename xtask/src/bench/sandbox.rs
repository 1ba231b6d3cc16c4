//! Builds, episodes and the code executor.

use anyhow::Result;

use super::table::Row;

pub(crate) fn rows() -> Result<Vec<Row>> {
    Ok(Vec::new())
}
