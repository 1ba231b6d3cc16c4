//! `harness.toml`: what a candidate says of itself.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::contract;

/// What a candidate says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Its name.
    pub name: String,
    /// The kind of task that it is for.
    pub domain: String,
    /// The version of the contract that it is written against, major and minor.
    pub contract: String,
    /// What it does, for people.
    #[serde(default)]
    pub description: String,
}

/// What is wrong with a `harness.toml`.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ManifestError {
    /// It is not what a manifest looks like.
    #[error("`harness.toml` is wrong:\n{0}")]
    Form(String),
    /// The name is none.
    #[error("`name = \"{0}\"` in `harness.toml`: a name has 1 to 64 letters, digits, `-` or `_`")]
    Name(String),
    /// It is for another version of the contract.
    #[error(
        "`contract = \"{0}\"` in `harness.toml`: this host has contract {ours}",
        ours = contract::VERSION
    )]
    Contract(String),
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// When it is not of the form, or is for another contract.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let manifest: Self = toml::from_str(text)
            .map_err(|error| ManifestError::Form(error.to_string().trim_end().to_owned()))?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let name = &manifest.name;
        if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
            return Err(ManifestError::Name(name.escape_debug().to_string()));
        }
        let ours = contract::VERSION
            .rsplit_once('.')
            .map_or("", |(minor, _)| minor);
        if manifest.contract != ours {
            return Err(ManifestError::Contract(
                manifest.contract.escape_debug().to_string(),
            ));
        }
        Ok(manifest)
    }
}
