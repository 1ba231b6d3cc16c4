//! The files of a candidate: what is read of a folder, and what is not.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::{Digest, LimitHit, Limits};

/// The manifest's name.
const MANIFEST: &str = "harness.toml";
/// The folders whose files are the candidate's.
const FOLDERS: [&str; 2] = ["src", "prompts"];
/// The file that is compiled.
pub(super) const ENTRY: &str = "src/lib.rs";
/// How deep folders may nest.
const DEPTH: usize = 8;

/// Why a folder is no candidate.
#[derive(Debug, Error)]
pub enum SourceError {
    /// It lacks a file that every candidate has.
    #[error("`{folder}` is no harness: it has no `{missing}`")]
    Missing {
        /// The folder.
        folder: String,
        /// What it lacks.
        missing: &'static str,
    },
    /// A symbolic link, a device, a pipe.
    #[error("`{0}` is not a plain file; a harness has plain files and folders, no links")]
    NotPlain(String),
    /// A name that is not plain either.
    #[error("`{0}` is no name for a harness's file: letters, digits, `.`, `-` and `_`")]
    Name(String),
    /// Too many or too large.
    #[error("{hit} by the files of the harness (at `{path}`)")]
    Limit {
        /// Which limit.
        hit: LimitHit,
        /// Where it was reached.
        path: String,
    },
    /// Folders in folders in folders.
    #[error("`{0}` nests deeper than {DEPTH} folders")]
    Deep(String),
    /// A source file that is not text.
    #[error("`{path}` is not UTF-8 text (at byte {at})")]
    NotText {
        /// The file.
        path: String,
        /// Where.
        at: usize,
    },
    /// It can't be read.
    #[error("`{path}` can't be read: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: io::Error,
    },
}

/// A candidate's files, by their path inside it.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) all: BTreeMap<PathBuf, Vec<u8>>,
}

impl Files {
    pub(super) fn manifest(&self) -> &str {
        let bytes = self
            .all
            .get(Path::new(MANIFEST))
            .map_or(&[][..], Vec::as_slice);
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    pub(super) fn digest(&self) -> Digest {
        let parts = self
            .all
            .iter()
            .flat_map(|(path, bytes)| [path.as_os_str().as_encoded_bytes(), bytes.as_slice()]);
        Digest::of_parts(parts)
    }
}

/// Reads `harness.toml`, `src/` and `prompts/` of a folder; nothing else in it is looked at.
pub(super) fn read(folder: &Path, limits: &Limits) -> Result<Files, SourceError> {
    let missing = |missing| SourceError::Missing {
        folder: folder.display().to_string(),
        missing,
    };
    if !folder.join(MANIFEST).exists() {
        return Err(missing(MANIFEST));
    }
    let mut reader = Reader {
        root: folder,
        limits,
        files: Files::default(),
        bytes: 0,
    };
    reader.file(Path::new(MANIFEST))?;
    for name in FOLDERS {
        if fs::symlink_metadata(folder.join(name)).is_ok() {
            reader.folder(Path::new(name), 1)?;
        }
    }
    if !reader.files.all.contains_key(Path::new(ENTRY)) {
        return Err(missing(ENTRY));
    }
    Ok(reader.files)
}

struct Reader<'a> {
    root: &'a Path,
    limits: &'a Limits,
    files: Files,
    bytes: u64,
}

impl Reader<'_> {
    fn folder(&mut self, path: &Path, depth: usize) -> Result<(), SourceError> {
        let shown = path.display().to_string();
        if depth > DEPTH {
            return Err(SourceError::Deep(shown));
        }
        let failed = |error| SourceError::Io {
            path: shown.clone(),
            error,
        };
        let full = self.root.join(path);
        if !fs::symlink_metadata(&full).map_err(failed)?.is_dir() {
            return Err(SourceError::NotPlain(shown));
        }
        for entry in fs::read_dir(&full).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            let Some(name) = name.to_str().filter(|name| name.chars().all(plain)) else {
                let name = path
                    .join(&name)
                    .to_string_lossy()
                    .escape_debug()
                    .to_string();
                return Err(SourceError::Name(name));
            };
            let inner = path.join(name);
            if entry.file_type().map_err(failed)?.is_dir() {
                self.folder(&inner, depth + 1)?;
            } else {
                self.file(&inner)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<(), SourceError> {
        let shown = path.display().to_string();
        let failed = |error| SourceError::Io {
            path: shown.clone(),
            error,
        };
        let full = self.root.join(path);
        let metadata = fs::symlink_metadata(&full).map_err(failed)?;
        if !metadata.is_file() {
            return Err(SourceError::NotPlain(shown));
        }
        // Looked at before it is read: a file may be larger than memory.
        self.bytes = self.bytes.saturating_add(metadata.len());
        let over = |limit| SourceError::Limit {
            hit: self.limits.hit(limit),
            path: shown.clone(),
        };
        if self.bytes > self.limits.source_bytes {
            return Err(over("source-bytes"));
        }
        if self.files.all.len() as u64 >= self.limits.source_files {
            return Err(over("source-files"));
        }
        let bytes = fs::read(&full).map_err(failed)?;
        if let Err(error) = std::str::from_utf8(&bytes) {
            return Err(SourceError::NotText {
                path: shown,
                at: error.valid_up_to(),
            });
        }
        self.files.all.insert(path.to_owned(), bytes);
        Ok(())
    }
}
