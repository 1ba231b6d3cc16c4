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

    /// What went wrong, from the end of the error output: of a traceback, the exception, with the
    /// executor's note on it if there is one.
    #[must_use]
    pub fn exception(&self) -> &str {
        let text = self.stderr.trim_end();
        let line = |text: &str| text.rfind('\n').map_or(0, |end| end + 1);
        let last = line(text);
        if text[last..].starts_with("note: ") && last > 0 {
            &text[line(&text[..last - 1])..]
        } else {
            &text[last..]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stderr: &str, expected: &str) {
        let (stdout, stderr) = (String::new(), stderr.to_owned());
        assert_eq!(
            Execution {
                status: Status::Error,
                stdout,
                stderr
            }
            .exception(),
            expected
        );
    }

    #[test]
    fn the_exception_is_at_the_end() {
        check("Traceback:\n  x\nValueError: no\n", "ValueError: no");
        check(
            "Traceback:\nImportError: no\nnote: there is y\n",
            "ImportError: no\nnote: there is y",
        );
        check("note: alone", "note: alone");
        check("", "");
    }
}
