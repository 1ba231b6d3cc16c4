//! SHA-256 digests, which name everything that is cached.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_parts([bytes])
    }

    /// The digest of several parts, each with its length, so that their borders count.
    #[must_use]
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let parts: Vec<&[u8]> = parts.into_iter().collect();
        let mut hasher = Sha256::new();
        for part in &parts {
            if parts.len() > 1 {
                hasher.update((part.len() as u64).to_le_bytes());
            }
            hasher.update(part);
        }
        let mut text = String::with_capacity(64);
        for byte in hasher.finalize() {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// All 64 digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 digits, for people.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }

    /// The first 8 bytes as a number, for seeds.
    #[must_use]
    pub fn to_u64(&self) -> u64 {
        self.0
            .get(..16)
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .unwrap_or_default()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
