//! TensorBoard, which a test reads our files of events with.

use anyhow::Result;

use super::environment;

/// Puts it into an environment of its own in the cache.
pub(crate) fn install() -> Result<()> {
    environment::install("tensorboard-2.21.0", &["tensorboard==2.21.0"], "a test")?;
    Ok(())
}
