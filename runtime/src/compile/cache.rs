//! Native code on disk, named by what it was made from.
//!
//! Native code is trusted by the process that loads it, so that the folder must belong to this user
//! and be closed to everyone else.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use crate::{Digest, files::write_whole, gate::Shape};

/// A folder of native code and of the modules that it came from.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Opens the cache in this folder, which is made if need be.
    ///
    /// # Errors
    /// When it can't be made, or belongs to or is open to anyone else.
    pub fn open(folder: PathBuf) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        let metadata = fs::metadata(&folder)?;
        let owner = nix::unistd::geteuid().as_raw();
        if metadata.uid() != owner || metadata.permissions().mode() & 0o077 != 0 {
            return Err(io::Error::other(format!(
                "`{}` holds native code and must belong to you and be closed to others (mode \
                 0700); it has mode {:04o} and belongs to user {}",
                folder.display(),
                metadata.permissions().mode() & 0o7777,
                metadata.uid(),
            )));
        }
        Ok(Self { folder })
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of native code with this key.
    #[must_use]
    pub fn artifact(&self, key: &Digest) -> PathBuf {
        self.folder.join(format!("{key}.native"))
    }

    pub(super) fn shape(&self, key: &Digest) -> Option<Shape> {
        let shape = fs::read(self.folder.join(format!("{key}.json"))).ok()?;
        self.artifact(key).exists().then_some(())?;
        serde_json::from_slice(&shape).ok()
    }

    /// Keeps native code; the file that says that it is there comes last.
    pub(super) fn store(&self, key: &Digest, shape: &Shape, artifact: &[u8]) -> io::Result<()> {
        write_whole(&self.artifact(key), artifact)?;
        write_whole(
            &self.folder.join(format!("{key}.json")),
            &serde_json::to_vec(shape)?,
        )
    }

    /// Keeps a module under its digest, for replays.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn keep_module(&self, digest: &Digest, wasm: &[u8]) -> io::Result<()> {
        let path = self.module(digest);
        if path.exists() {
            Ok(())
        } else {
            write_whole(&path, wasm)
        }
    }

    /// The file of the module with this digest.
    #[must_use]
    pub fn module(&self, digest: &Digest) -> PathBuf {
        self.folder.join(format!("{digest}.wasm"))
    }
}
