//! Cargo's helpers, installed into the cache when they are missing.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::{
    command::{self, say},
    paths,
};

/// A command that runs the tests.
pub(crate) fn nextest() -> Result<Command> {
    let mut command = tool("cargo-nextest")?;
    command.arg("nextest");
    Ok(command)
}

/// A command that checks licences, duplicates and advisories of dependencies.
pub(crate) fn deny() -> Result<Command> {
    tool("cargo-deny")
}

fn tool(name: &str) -> Result<Command> {
    if command::works(Command::new(name).arg("--version")) {
        return Ok(Command::new(name));
    }
    let folder = paths::cache()?.join("tools");
    let program: PathBuf = folder.join("bin").join(name);
    if !program.exists() {
        say(&format!("installing {name}"));
        let mut install = command::cargo();
        install
            .current_dir(paths::cache()?)
            .args(["install", "--quiet", "--locked", "--debug", name, "--root"])
            .arg(&folder)
            .env("CARGO_TARGET_DIR", folder.join("target"));
        command::run(&mut install)?;
        // Some hundreds of megabytes that nothing needs any more.
        let _ = std::fs::remove_dir_all(folder.join("target"));
    }
    Ok(Command::new(program))
}
