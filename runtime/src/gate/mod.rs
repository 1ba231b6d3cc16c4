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
