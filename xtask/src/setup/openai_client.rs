//! The official Python client of OpenAI's protocol, which a test drives the server with.

use anyhow::Result;

use super::environment;

/// Puts it into an environment of its own in the cache.
pub(crate) fn install() -> Result<()> {
    environment::install("openai-client", &["openai==3.57.0"], "a test")?;
    Ok(())
}
