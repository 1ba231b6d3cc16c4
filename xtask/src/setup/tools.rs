//! Cargo's helpers, installed into the cache when they are missing.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    command::{self, say},
    paths,
};

/// A command that runs the tests.
pub(crate) fn nextest() -> Result<Command> {
    let mut command = tool("cargo-nextest")?;
    command::forget_this_package(&mut command);
    command.arg("nextest");
    Ok(command)
}

/// A command that checks licences, duplicates and advisories of dependencies.
pub(crate) fn deny() -> Result<Command> {
    tool("cargo-deny")
}

/// What the harness in C is compiled with: a compiler, a linker and a C library for WebAssembly.
pub(crate) fn clang() -> Result<()> {
    let there = ["clang", "wasm-ld"]
        .into_iter()
        .all(|tool| command::works(Command::new(tool).arg("--version")));
    if there && Path::new("/usr/lib/wasm32-wasi/libc.a").exists() {
        return Ok(());
    }
    packages(&["clang", "lld", "wasi-libc"])
}

/// Installs packages of the distribution.
pub(super) fn packages(names: &[&str]) -> Result<()> {
    say(&format!("installing {}", names.join(", ")));
    if !command::works(Command::new("apt-get").arg("--version")) {
        bail!(
            "these packages of Debian's, or what they are called here: {}",
            names.join(", ")
        );
    }
    command::run(Command::new("apt-get").args(["update", "-qq"]))?;
    let mut install = Command::new("apt-get");
    install
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(names);
    command::run(install.env("DEBIAN_FRONTEND", "noninteractive"))
        .context("the packages could not be installed; it may need root")
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
