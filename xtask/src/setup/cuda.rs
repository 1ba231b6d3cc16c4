//! NVIDIA's compiler and headers, to check the code for their devices where there is none.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{
    command::{self, say},
    paths,
};

/// Python packages with parts of the toolkit (NVIDIA's licence), 1.1 GB in all.
const PACKAGES: [&str; 8] = [
    "nvidia-cuda-nvcc==13.2.*",
    "nvidia-cuda-crt==13.2.*",
    "nvidia-nvvm==13.2.*",
    "nvidia-cuda-runtime==13.2.*",
    "nvidia-cuda-nvrtc==13.2.*",
    "nvidia-cuda-cccl",
    "nvidia-curand",
    "nvidia-cublas<13.11",
];
/// Libraries that are linked by these names, without versions.
const LINKED: [&str; 5] = ["cublas", "cublasLt", "cudart", "curand", "nvrtc"];
/// Devices from this generation on (A100).
const CAPABILITY: &str = "80";

/// A toolkit that is there.
pub(crate) struct Toolkit(PathBuf);

impl Toolkit {
    /// Makes a build use it.
    pub(crate) fn apply(&self, build: &mut Command) {
        let programs = self.0.join("bin");
        let others = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(
            [programs.clone()]
                .into_iter()
                .chain(env::split_paths(&others)),
        );
        build
            .env("CUDA_HOME", &self.0)
            .env("NVCC", programs.join("nvcc"))
            .env("CUDA_COMPUTE_CAP", CAPABILITY)
            .env("PATH", path.unwrap_or(others));
    }
}

/// Puts it into the cache.
pub(crate) fn install() -> Result<Toolkit> {
    let folder = paths::cache()?.join("cuda-13.2");
    let toolkit = folder.join("nvidia/cu13");
    if folder.exists() {
        return Ok(Toolkit(toolkit));
    }
    say("installing NVIDIA's compiler from Python packages into the cache, 1.1 GB");
    let beside = folder.with_extension("new");
    let python = paths::python().context("there is no Python with pip, which a check needs")?;
    let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"];
    command::run(
        Command::new(python)
            .args(pip)
            .arg("--disable-pip-version-check")
            .arg("--target")
            .arg(&beside)
            .args(PACKAGES),
    )?;
    arrange(&beside.join("nvidia/cu13"))?;
    fs::rename(beside, &folder)?;
    Ok(Toolkit(toolkit))
}

/// The packages leave out what a toolkit that was installed as a whole has.
fn arrange(toolkit: &Path) -> Result<()> {
    let libraries = toolkit.join("lib");
    let names: Vec<String> = fs::read_dir(&libraries)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    for linked in LINKED {
        let plain = format!("lib{linked}.so");
        let versioned = names
            .iter()
            .find(|name| name.starts_with(&format!("{plain}.")))
            .with_context(|| format!("NVIDIA's packages hold no `{plain}`"))?;
        link(versioned, &libraries.join(plain))?;
    }
    // The driver's library is there only with a device. Nothing is linked in a check.
    fs::write(libraries.join("libcuda.so"), "")?;
    link("lib", &toolkit.join("lib64"))
}

fn link(to: &str, at: &Path) -> Result<()> {
    match symlink(to, at) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}
