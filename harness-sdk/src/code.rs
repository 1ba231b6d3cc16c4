//! Runs programs that the model wrote.

use crate::{Result, bindings::whale::harness::code as host};

pub use host::{Execution, Status};

/// Runs a Python program; what it prints is in the result, whether it failed or not.
///
/// # Errors
/// Only when the host could not run it: a program that fails is an [`Execution`] with a status.
pub fn python(source: &str) -> Result<Execution> {
    execute("python", source, "")
}

/// Runs a program in a language that the host has, with text on its standard input.
///
/// # Errors
/// As [`python`].
pub fn execute(language: &str, source: &str, stdin: &str) -> Result<Execution> {
    Ok(host::execute(language, source, stdin)?)
}

impl Execution {
    /// What the program printed, trimmed, if it ended well and printed something.
    #[must_use]
    pub fn output(&self) -> Option<String> {
        let text = self.stdout.trim();
        (self.status == Status::Ok && !text.is_empty()).then(|| text.to_owned())
    }

    /// The last line of the error output: of a traceback, the exception.
    #[must_use]
    pub fn last_error_line(&self) -> &str {
        self.stderr.trim_end().lines().last().unwrap_or_default()
    }
}
