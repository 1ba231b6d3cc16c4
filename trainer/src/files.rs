//! Files that are there whole or not at all.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
};

use sha2::{Digest as _, Sha256};

use crate::TrainError;

/// Writes a file beside its place, makes sure that it is on the disk, and names it.
///
/// # Errors
/// When it can't be written; then what was there before stays.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let beside = path.with_extension("part");
    let io = || TrainError::io(path);
    let mut file = File::create(&beside).map_err(io())?;
    file.write_all(bytes).map_err(io())?;
    file.sync_all().map_err(io())?;
    fs::rename(&beside, path).map_err(io())?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// Makes sure that a folder's names are on the disk.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), TrainError> {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let file = File::open(folder).map_err(TrainError::io(folder))?;
    file.sync_all().map_err(TrainError::io(folder))
}

/// The SHA-256 of a file, in hexadecimal.
pub(crate) fn hash(path: &Path) -> Result<String, TrainError> {
    let mut file = File::open(path).map_err(TrainError::io(path))?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher).map_err(TrainError::io(path))?;
    Ok(format!("{:x}", hasher.finalize()))
}
