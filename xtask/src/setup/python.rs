//! The code executor's Python interpreter, compiled for WebAssembly.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use super::wasm::{TARGET, Wasm};
use crate::{
    command::{self, say},
    paths,
};

/// Instructions that every host of this project has.
const FEATURES: &str = "-Ctarget-feature=+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint";

pub(crate) fn build(cache: &Path, wasm: &Wasm) -> Result<()> {
    let source = paths::root().join("guest-harnesses/python-executor");
    let sources = ["Cargo.toml", "Cargo.lock", "src"].map(|path| source.join(path));
    let key = paths::digest(&sources, &[&wasm.version, FEATURES, "1"])?;
    let module = cache.join("python-executor.wasm");
    let stamp = cache.join("python-executor.key");
    let is_current = fs::read_to_string(&stamp).is_ok_and(|known| known == key);
    if module.exists() && is_current {
        return Ok(());
    }
    say("building the Python interpreter for the code executor, once (about 10 minutes)");
    let target = cache.join("python-target");
    let mut cargo = command::cargo();
    cargo
        .current_dir(&source)
        .env("CARGO_TARGET_DIR", &target)
        // Some of its crates name a newer compiler than they need.
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--ignore-rust-version",
        ]);
    wasm.apply(&mut cargo, FEATURES);
    command::run(&mut cargo)?;
    let built = target.join(TARGET).join("release/python_executor.wasm");
    let beside = cache.join("python-executor.wasm.new");
    fs::copy(&built, &beside)
        .with_context(|| format!("the interpreter is not at `{}`", built.display()))?;
    fs::rename(beside, module)?;
    fs::write(stamp, key)?;
    Ok(())
}
