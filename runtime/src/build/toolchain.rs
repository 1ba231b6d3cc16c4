//! The compiler for guests and the prebuilt SDK, as the set-up wrote them down.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The compiler for guests and the prebuilt SDK: `toolchain.json`, which the set-up writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Toolchain {
    /// Names compiler and SDK together; part of what names a built harness.
    pub key: String,
    /// Where the compiler for WebAssembly came from, in words.
    pub origin: String,
    /// What the compiler says of its version.
    pub version: String,
    /// The compiler.
    pub rustc: PathBuf,
    /// Where its libraries for WebAssembly are, if not in its own folder.
    pub sysroot: Option<PathBuf>,
    /// The linker for WebAssembly.
    pub linker: PathBuf,
    /// Further arguments for the linker.
    pub link_args: Vec<String>,
    /// The SDK.
    pub sdk: PathBuf,
    /// Folders with what the SDK depends on; the macros that it was made with are there too.
    pub dependencies: Vec<PathBuf>,
    /// What the compiler and the linker themselves read and run.
    pub folders: Vec<PathBuf>,
}

/// Why the toolchain could not be used.
#[derive(Debug, Error)]
pub enum ToolchainError {
    /// The set-up has not been run.
    #[error("there is no toolchain for guests: `{0}` does not exist")]
    Missing(String),
    /// The file is not what the set-up writes.
    #[error("`{path}` is not what the set-up writes: {message}")]
    Form {
        /// The file.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// Something that it names is gone.
    #[error("the toolchain for guests is incomplete: `{0}` does not exist")]
    Gone(String),
}

impl Toolchain {
    /// Reads what the set-up wrote, and checks that it is all there.
    ///
    /// # Errors
    /// When the set-up has not been run, or something is gone.
    pub fn read(path: &Path) -> Result<Self, ToolchainError> {
        let name = || path.display().to_string();
        let text = std::fs::read(path).map_err(|_| ToolchainError::Missing(name()))?;
        let toolchain: Self =
            serde_json::from_slice(&text).map_err(|error| ToolchainError::Form {
                path: name(),
                message: error.to_string(),
            })?;
        if let Some(gone) = toolchain.parts().find(|part| !part.exists()) {
            return Err(ToolchainError::Gone(gone.display().to_string()));
        }
        Ok(toolchain)
    }

    fn parts(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.rustc, &self.linker, &self.sdk]
            .into_iter()
            .chain(&self.sysroot)
            .chain(&self.dependencies)
    }
}
