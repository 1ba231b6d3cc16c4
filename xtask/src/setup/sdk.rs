//! The SDK, compiled for guests, and `toolchain.json`, which tells `whale-host` of both.

use std::{fs, path::Path};

use anyhow::Result;
use serde_json::json;

use super::wasm::{TARGET, Wasm};
use crate::{
    command::{self, say},
    paths,
};

pub(crate) fn build(cache: &Path, wasm: &Wasm) -> Result<()> {
    let root = paths::root();
    let sources = [
        "harness-sdk/Cargo.toml",
        "harness-sdk/src",
        "harness-sdk/wit",
        "Cargo.lock",
    ]
    .map(|path| root.join(path));
    let place = wasm
        .sysroot
        .as_deref()
        .unwrap_or(&wasm.rustc)
        .display()
        .to_string();
    let key = paths::digest(&sources, &[&wasm.version, &place, "1"])?;
    // Its own target folder: what the host is built of would clash with what guests are built of.
    let target = cache.join("sdk").join(&key);
    let built = target.join(TARGET).join("guest");
    if !built.join("done").exists() {
        say("building the SDK for guests");
        let mut cargo = command::cargo();
        cargo
            .current_dir(&root)
            .env("CARGO_TARGET_DIR", &target)
            .args([
                "build",
                "--quiet",
                "--package",
                "whale-harness",
                "--profile",
                "guest",
            ]);
        wasm.apply(&mut cargo, "");
        command::run(&mut cargo)?;
        fs::write(built.join("done"), "")?;
    }
    let toolchain = json!({
        "key": key,
        "origin": wasm.origin,
        "version": wasm.version,
        "rustc": wasm.rustc,
        "sysroot": wasm.sysroot,
        "linker": wasm.linker,
        "link-args": wasm.link_args,
        "sdk": built.join("libwhale_harness.rlib"),
        "dependencies": [built.join("deps"), target.join("guest/deps")],
        "folders": wasm.folders,
    });
    let beside = cache.join("toolchain.json.new");
    fs::write(&beside, serde_json::to_vec_pretty(&toolchain)?)?;
    fs::rename(beside, cache.join("toolchain.json"))?;
    Ok(())
}
