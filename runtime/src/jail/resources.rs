//! Resource limits of a process.

use nix::sys::resource::{Resource, setrlimit};
use serde::{Deserialize, Serialize};

use super::JailError;

/// Bounds for a process and, each for itself, its children; `None` leaves the system's.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Resources {
    /// Seconds of processor time.
    pub cpu_seconds: Option<u64>,
    /// Bytes of address space.
    pub address_space: Option<u64>,
    /// Bytes of one file.
    pub file_bytes: Option<u64>,
    /// Open descriptors.
    pub descriptors: Option<u64>,
}

impl Resources {
    pub(super) fn apply(&self) -> Result<(), JailError> {
        let bounds = [
            ("processor seconds", Resource::RLIMIT_CPU, self.cpu_seconds),
            ("address space", Resource::RLIMIT_AS, self.address_space),
            ("file size", Resource::RLIMIT_FSIZE, self.file_bytes),
            ("descriptors", Resource::RLIMIT_NOFILE, self.descriptors),
            // A core file would hold what the process knew.
            ("core file size", Resource::RLIMIT_CORE, Some(0)),
        ];
        for (what, resource, value) in bounds {
            let Some(value) = value else { continue };
            setrlimit(resource, value, value).map_err(|error| JailError::Resource {
                what,
                value,
                error: error.into(),
            })?;
        }
        Ok(())
    }
}
