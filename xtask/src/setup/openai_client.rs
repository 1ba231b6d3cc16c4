//! The official Python client of OpenAI's protocol, which a test drives the server with.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use crate::{
    command::{self, say},
    paths,
};

const PACKAGE: &str = "openai==3.57.0";

/// Puts it into an environment of its own in the cache.
pub(crate) fn install() -> Result<()> {
    let folder = folder()?;
    if folder.exists() {
        return Ok(());
    }
    say(&format!(
        "installing the Python package {PACKAGE} into the cache, for a test"
    ));
    let beside = folder.with_extension("new");
    let python = paths::python().context("there is no Python with pip, which a test needs")?;
    command::run(
        Command::new(python)
            .args(["-m", "venv", "--clear"])
            .arg(&beside),
    )?;
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        PACKAGE,
    ];
    command::run(Command::new(beside.join("bin/python")).args(pip))?;
    // Its programs are found by name alone, so the environment can move.
    std::fs::rename(beside, &folder)?;
    Ok(())
}

fn folder() -> Result<PathBuf> {
    Ok(paths::cache()?.join("openai-client"))
}
