//! Why a module is refused.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{LimitHit, contract};

/// Why a module is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refused {
    /// There is nothing in it.
    #[error("not WebAssembly: it is empty")]
    Empty,
    /// It does not start as WebAssembly does.
    #[error("not WebAssembly: it starts with `{starts}`")]
    NotWasm {
        /// Its first bytes.
        starts: String,
    },
    /// It is cut short, malformed, or uses a feature that is switched off.
    #[error("not valid WebAssembly for this host: {message} (at byte {offset})")]
    Invalid {
        /// What the parser said.
        message: String,
        /// Where.
        offset: u64,
    },
    /// It is larger than it may be.
    #[error("{0}")]
    Limit(LimitHit),
    /// It imports something that no harness may.
    #[error(
        "it imports `{name}`, which no harness may; what it may import: {}",
        allowed()
    )]
    Import {
        /// The module and name, or the interface.
        name: String,
    },
    /// It was made for another version of the contract.
    #[error(
        "it is made for contract version {found} (it imports `{import}`); this host has {}",
        contract::VERSION
    )]
    Version {
        /// The version that it asks for.
        found: String,
        /// The import that says so.
        import: String,
    },
    /// It is a component for another world.
    #[error(
        "it is a component for another world: a harness exports `run`, and this exports {}",
        list(exports)
    )]
    World {
        /// What it exports.
        exports: Vec<String>,
    },
    /// Its types are not those of the contract, or it was not made against the contract at all.
    #[error("it does not fit contract version {}: {message}", contract::VERSION)]
    Contract {
        /// What does not fit.
        message: String,
    },
}

fn allowed() -> String {
    list(contract::INTERFACES)
}

fn list(names: &[impl AsRef<str>]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    let quoted: Vec<String> = names
        .iter()
        .map(|name| format!("`{}`", name.as_ref()))
        .collect();
    quoted.join(", ")
}

impl From<wasmparser::BinaryReaderError> for Refused {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Invalid {
            message: error.message().to_owned(),
            offset: error.offset() as u64,
        }
    }
}
