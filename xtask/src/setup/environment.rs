//! Environments of Python packages in the cache.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use crate::{
    command::{self, say},
    paths,
};

/// Makes an environment of this name with these packages, if it is not there, and returns its Python.
pub(super) fn install(name: &str, packages: &[&str], what: &str) -> Result<PathBuf> {
    let folder = paths::cache()?.join(name);
    let python = folder.join("bin/python");
    if folder.exists() {
        return Ok(python);
    }
    say(&format!(
        "installing {} into the cache, for {what}",
        packages.join(", ")
    ));
    let beside = folder.with_extension("new");
    let base =
        paths::python().with_context(|| format!("there is no Python with pip for {what}"))?;
    command::run(
        Command::new(base)
            .args(["-m", "venv", "--clear"])
            .arg(&beside),
    )?;
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ];
    command::run(
        Command::new(beside.join("bin/python"))
            .args(pip)
            .args(packages),
    )?;
    // Its programs are found by name alone, so the environment can move.
    std::fs::rename(beside, &folder)?;
    Ok(python)
}
