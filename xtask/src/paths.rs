//! Where things are: the checkout, the cache that outlives it, the built program.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::command;

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The cache of `whale-host`, where the set-up puts what it makes.
pub(crate) fn cache() -> Result<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    let folder = variable("WHALE_CACHE")
        .map(PathBuf::from)
        .or_else(|| variable("XDG_CACHE_HOME").map(|base| PathBuf::from(base).join("whale")))
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache/whale")))
        .context("there is no place for a cache: set `WHALE_CACHE` to a folder")?;
    fs::create_dir_all(&folder).with_context(|| format!("`{}` can't be made", folder.display()))?;
    Ok(folder)
}

/// Builds `whale-host` and returns where it is.
pub(crate) fn host() -> Result<PathBuf> {
    let mut build = command::cargo();
    build
        .current_dir(root())
        // The whole workspace, so that its dependencies are built with the same features as in tests.
        .args(["build", "--quiet", "--workspace", "--bins"]);
    command::run(&mut build)?;
    Ok(target()?.join("debug/whale-host"))
}

/// The folder that cargo builds into.
pub(crate) fn target() -> Result<PathBuf> {
    let mut metadata = command::cargo();
    metadata.current_dir(root()).args([
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--offline",
    ]);
    let metadata: serde_json::Value = serde_json::from_str(&command::output(&mut metadata)?)?;
    let folder = metadata["target_directory"]
        .as_str()
        .context("cargo names no target folder")?;
    Ok(PathBuf::from(folder))
}

/// A digest of files and folders and of further words, for the names of what is made from them.
pub(crate) fn digest(paths: &[PathBuf], words: &[&str]) -> Result<String> {
    let mut hasher = Sha256::new();
    for path in paths {
        add(&mut hasher, path)?;
    }
    for word in words {
        hasher.update(word.len().to_le_bytes());
        hasher.update(word);
    }
    Ok(format!("{:x}", hasher.finalize())[..16].to_owned())
}

fn add(hasher: &mut Sha256, path: &Path) -> Result<()> {
    if path.is_dir() {
        let entries = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
        let mut inner: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        inner.sort();
        return inner.iter().try_for_each(|path| add(hasher, path));
    }
    let bytes = fs::read(path).with_context(|| format!("`{}` can't be read", path.display()))?;
    hasher.update(path.file_name().unwrap_or_default().as_encoded_bytes());
    hasher.update(bytes.len().to_le_bytes());
    hasher.update(&bytes);
    Ok(())
}

/// A Python that is there, for what only its package index carries.
pub(crate) fn python() -> Option<&'static str> {
    ["python3", "python"]
        .into_iter()
        .find(|python| command::works(Command::new(python).args(["-m", "pip", "--version"])))
}
