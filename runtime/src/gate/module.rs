//! What a core module may import.

use super::{Refused, Shape};
use crate::contract;

/// The functions of WASI preview 1, all of which the adapter has.
const PREVIEW1: &str = "wasi_snapshot_preview1/";

pub(super) fn check_imports(shape: &Shape) -> Result<(), Refused> {
    shape.imports.iter().try_for_each(|import| {
        if import.starts_with(PREVIEW1) {
            return Ok(());
        }
        // `interface@version/function`
        let interface = import
            .rsplit_once('/')
            .map_or(import.as_str(), |(interface, _)| interface);
        check_interface(interface, import, false)
    })
}

/// Checks the name of an imported interface, such as `whale:harness/model@0.1.0`.
pub(super) fn check_interface(interface: &str, import: &str, adapted: bool) -> Result<(), Refused> {
    let (name, version) = interface.split_once('@').unwrap_or((interface, ""));
    let known = contract::INTERFACES.contains(&name) || (adapted && name == contract::SYSTEM);
    if !known {
        return Err(Refused::Import {
            name: printable(import.as_bytes()),
        });
    }
    if version != contract::VERSION {
        let (found, import) = (printable(version.as_bytes()), printable(import.as_bytes()));
        return Err(Refused::Version { found, import });
    }
    Ok(())
}

/// The first bytes of something foreign, as text that is safe to show.
pub(super) fn printable(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(80)];
    cut.escape_ascii().to_string()
}
