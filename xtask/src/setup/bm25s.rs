//! The Python package bm25s, to compare the index of passages with.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use crate::{
    command::{self, say},
    paths,
};

/// The package (MIT), what it stems with, and what makes it fast.
const PACKAGES: [&str; 3] = ["bm25s==0.3.16", "PyStemmer", "numba"];

/// A Python that has it.
pub(crate) fn install() -> Result<PathBuf> {
    let folder = paths::cache()?.join("bm25s-0.3.16");
    let python = folder.join("bin/python");
    let ready = folder.join("ready");
    if ready.exists() {
        return Ok(python);
    }
    say("installing the Python package bm25s into the cache, for a benchmark");
    let base =
        paths::python().context("there is no Python with pip, which this benchmark needs")?;
    command::run(
        Command::new(base)
            .args(["-m", "venv", "--clear"])
            .arg(&folder),
    )?;
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ];
    command::run(Command::new(&python).args(pip).args(PACKAGES))?;
    std::fs::write(ready, "")?;
    Ok(python)
}
