//! From a candidate's source to wasm, in a jail.
//!
//! The compiler is called directly, on a copy of the candidate's files, against the prebuilt SDK: no
//! manifest, no build script, no macro crate and no dependency of the candidate's can come into it.
//! It reads the toolchain, the SDK and that copy, and what it says it has read is checked again
//! afterwards.

mod compiler;
mod manifest;
mod source;
mod toolchain;

use std::path::{Path, PathBuf};

use thiserror::Error;

pub use manifest::{Manifest, ManifestError};
pub use source::SourceError;
pub use toolchain::{Toolchain, ToolchainError};

use crate::{
    Digest, LimitHit, Limits,
    compile::{CompileError, Compiler},
    files::write_whole,
    gate::Shape,
    process::Program,
};

/// Why a candidate was not built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The folder is no candidate.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Its `harness.toml` is wrong.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The compiler refused it; the text is the compiler's, with paths inside the candidate.
    #[error("the compiler refused the harness:\n\n{messages}")]
    Compiler {
        /// All that the compiler said.
        messages: String,
    },
    /// The compiler reached a limit.
    #[error("{hit} while the harness was compiled{}", said(.messages))]
    Limit {
        /// Which.
        hit: LimitHit,
        /// What the compiler had said.
        messages: String,
    },
    /// The compiler read what is not the candidate's.
    #[error("the harness reads `{path}` at compile time; it may read its own folder and no more")]
    ReadOutside {
        /// What it read.
        path: String,
    },
    /// The harness asked for a variable of the environment.
    #[error(
        "the harness reads the environment variable `{name}` at compile time; it may read none"
    )]
    ReadEnvironment {
        /// Which.
        name: String,
    },
    /// The jail is not to be had here.
    #[error("the compiler could not be jailed: {0}")]
    Jail(String),
    /// What came out did not pass the gate.
    #[error("the harness was compiled, but the module is refused")]
    Gate(#[from] CompileError),
    /// Files, or the compiler's process.
    #[error("{what}: {error}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        error: std::io::Error,
    },
}

fn said(messages: &str) -> String {
    if messages.trim().is_empty() {
        String::new()
    } else {
        format!("; it had said:\n\n{messages}")
    }
}

/// A harness that was built.
#[derive(Clone, Debug)]
pub struct Built {
    /// The module.
    pub wasm: Vec<u8>,
    /// Of the candidate's files.
    pub source: Digest,
    /// The candidate's manifest.
    pub manifest: Manifest,
    /// What the gate saw.
    pub shape: Shape,
    /// Warnings of the compiler.
    pub warnings: String,
    /// Whether the same source had been built before and was taken from there.
    pub cached: bool,
}

/// Builds candidates.
#[derive(Clone, Debug)]
pub struct Builder {
    /// The program that plays the jail's role.
    pub program: Program,
    /// The compiler and the SDK.
    pub toolchain: Toolchain,
    /// For copies of candidates and the compiler's own cache.
    pub folder: PathBuf,
    /// For the gate.
    pub gate: Compiler,
    /// Run without what the kernel does not offer of a jail. Only ever a person's own choice.
    pub unsafe_no_jail: bool,
}

impl Builder {
    /// Builds the candidate in this folder.
    ///
    /// # Errors
    /// When the folder is no candidate, the compiler refuses it or reaches a limit, it reads
    /// anything outside, or what comes out does not pass the gate.
    pub async fn build(&self, candidate: &Path, limits: &Limits) -> Result<Built, BuildError> {
        let files = source::read(candidate, limits)?;
        let manifest = Manifest::parse(files.manifest())?;
        let source = files.digest();
        let place = compiler::Place::open(&self.folder, candidate)?;
        let key = Digest::of_parts([source.as_str().as_bytes(), self.toolchain.key.as_bytes()]);

        let (wasm, warnings, cached) = match place.built(&key) {
            Some(wasm) => (wasm, String::new(), true),
            None => {
                place.stage(&files)?;
                let warnings = compiler::run(self, &place, limits).await?;
                (place.output()?, warnings, false)
            }
        };
        let shape = self.gate.check(&wasm, limits).await?;
        if !cached {
            place.keep(&key, &wasm)?;
        }
        Ok(Built {
            wasm,
            source,
            manifest,
            shape,
            warnings,
            cached,
        })
    }
}

/// Writes a built harness to a file, whole or not at all.
///
/// # Errors
/// When it can't be written.
pub fn write(path: &Path, wasm: &[u8]) -> Result<(), BuildError> {
    write_whole(path, wasm).map_err(|error| BuildError::Io {
        what: format!("`{}` could not be written", path.display()),
        error,
    })
}
