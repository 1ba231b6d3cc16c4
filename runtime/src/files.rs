//! Files that are there whole or not at all.

use std::{io, path::Path};

/// Writes a file so that nobody ever sees half of it: beside its place, synced, then named.
///
/// # Errors
/// When it can't be written; nothing of it stays then.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use io::Write as _;

    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
