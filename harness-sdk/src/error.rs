//! Why a harness gives up.

use std::fmt;

use crate::{HostError, LimitHit};

/// The result of what a harness does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a harness gives up; its text is what the episode's record shows.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A host call failed.
    Host(HostError),
    /// A prompt file has a placeholder that was given no value.
    Placeholder(String),
    /// A model never gave what was asked for, with the last complaint about its replies.
    NoAnswer(String),
    /// Anything else that the harness wants to say.
    Other(String),
}

impl Error {
    /// An error with this text.
    pub fn other(text: impl Into<String>) -> Self {
        Self::Other(text.into())
    }

    /// The limit that was reached, if that is what happened.
    #[must_use]
    pub fn limit(&self) -> Option<&LimitHit> {
        match self {
            Self::Host(HostError::Limit(hit)) => Some(hit),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(HostError::Denied(what)) => write!(f, "the host denied it: {what}"),
            Self::Host(HostError::Limit(hit)) => {
                write!(f, "the limit `{}` of {} is used up", hit.limit, hit.value)
            }
            Self::Host(HostError::Invalid(why)) => write!(f, "the host refused the request: {why}"),
            Self::Host(HostError::Unavailable(what)) => {
                write!(f, "the host does not offer this: {what}")
            }
            Self::Placeholder(name) => write!(f, "no value for `{{{{{name}}}}}` in a prompt"),
            Self::NoAnswer(why) => write!(f, "the model gave no usable answer: {why}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}
