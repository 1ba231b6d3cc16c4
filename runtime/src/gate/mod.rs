//! What a module must be before the engine sees a byte of it.
//!
//! The engine's compiler is not covered by its promise of security, so that the size and shape of
//! what it is given are bounded here, by a parser that is made for hostile input. A core module that
//! passes is turned into a component, which passes through the same gate.

mod component;
mod module;
mod refused;
mod walk;

use serde::{Deserialize, Serialize};

use crate::Limits;

pub use component::componentise;
pub use refused::Refused;

/// What a module is, as a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A core module, as a compiler makes it.
    Core,
    /// A component.
    Component,
}

/// What the gate saw of a module that passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Shape {
    /// A core module or a component.
    pub kind: Kind,
    /// Its size.
    pub bytes: u64,
    /// What it imports: interfaces, and for a core module its functions.
    pub imports: Vec<String>,
    /// What it exports.
    pub exports: Vec<String>,
    /// Functions, in all its parts.
    pub functions: u64,
    /// Linear memory that it asks for at the start, in all its parts.
    pub memory_bytes: u64,
}

/// Checks a core module or a component against the limits of the gate, the features of the engine
/// and the list of what may be imported.
///
/// # Errors
/// The first reason to refuse it.
pub fn check(bytes: &[u8], limits: &Limits) -> Result<Shape, Refused> {
    if bytes.len() as u64 > limits.module_bytes {
        return Err(Refused::Limit(limits.hit("module-bytes")));
    }
    if bytes.is_empty() {
        return Err(Refused::Empty);
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(Refused::NotWasm {
            starts: module::printable(bytes),
        });
    }
    let shape = walk::walk(bytes, limits)?;
    match shape.kind {
        Kind::Core => module::check_imports(&shape)?,
        Kind::Component => component::check_world(&shape)?,
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GUEST: &str = r#"(module
        (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (table 4 funcref)
        (func (export "run") (param i32) (result i32) (local i64 f64)
            (block (br_table 0 0 (local.get 0)))
            (i32.add (local.get 0) (i32.const 1)))
        (data (i32.const 8) "hello"))"#;

    #[test]
    fn what_is_within_the_bounds_passes_and_is_described() {
        let shape = check(&wat::parse_str(GUEST).unwrap(), &Limits::default()).unwrap();
        assert_eq!(shape.kind, Kind::Core);
        assert_eq!(shape.imports, ["wasi_snapshot_preview1/fd_write"]);
        assert_eq!(shape.exports, ["memory", "run"]);
        assert_eq!((shape.functions, shape.memory_bytes), (1, 64 << 10));
    }

    #[test]
    fn the_adapter_has_every_function_of_preview_1_that_passes_the_gate() {
        let guest = GUEST.replace("fd_write", "no_such_function");
        let module = wat::parse_str(guest).unwrap();
        // The gate leaves the names of WASI functions to the adapter, which knows them all.
        check(&module, &Limits::default()).unwrap();
        assert!(componentise(&module).is_err());
    }

    proptest! {
        /// A module that was damaged anywhere is taken or refused, and nothing else happens.
        #[test]
        fn damage_is_survived(
            at in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut module = wat::parse_str(GUEST).unwrap();
            for (index, byte) in at {
                let at = index.index(module.len());
                module[at] = byte;
            }
            let _ = check(&module, &Limits::default());
            let _ = check(&module[..cut.index(module.len())], &Limits::default());
            if check(&module, &Limits::default()).is_ok() {
                let _ = componentise(&module);
            }
        }
    }
}
