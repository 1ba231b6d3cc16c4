//! What went wrong, whose matter it is, and what to do about it.

use std::{fmt, process::ExitCode};

use crate::printer;

/// Whose matter a failure is; it sets the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The harness failed: it does not build, is refused, or ended without an answer.
    Harness,
    /// The user asked for something that can't be.
    User,
    /// Something that is neither: a missing tool, a server, a disk.
    Infrastructure,
}

impl Kind {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Harness => 1,
            Self::User => 2,
            Self::Infrastructure => 3,
        }
    }
}

/// A failure of a command: one sentence, and a hint when there is a next step.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    error: anyhow::Error,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn harness(error: impl Into<anyhow::Error>) -> Self {
        Self {
            kind: Kind::Harness,
            error: error.into(),
            hint: None,
        }
    }

    pub(crate) fn user(error: impl Into<anyhow::Error>) -> Self {
        Self {
            kind: Kind::User,
            error: error.into(),
            hint: None,
        }
    }

    pub(crate) fn infrastructure(error: impl Into<anyhow::Error>) -> Self {
        Self {
            kind: Kind::Infrastructure,
            error: error.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Says it on stderr.
    pub(crate) fn report(&self) -> ExitCode {
        printer::error(&format!("error: {:#}", self.error));
        if let Some(hint) = &self.hint {
            printer::error(&format!("hint: {hint}"));
        }
        ExitCode::from(self.kind.code())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

/// What commands return.
pub(crate) type CommandResult = Result<ExitCode, Failure>;
