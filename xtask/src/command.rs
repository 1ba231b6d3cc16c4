//! Other programs, with what they say when they fail.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// A command that shows what it prints.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command
        .status()
        .with_context(|| format!("`{shown}` could not be started"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// What a command prints; its errors are shown.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("`{shown}` could not be started"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({})", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether a command works, without a word.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The cargo that runs this task.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn shown(command: &Command) -> String {
    let arguments = command
        .get_args()
        .map(|argument| argument.to_string_lossy());
    let words = std::iter::once(command.get_program().to_string_lossy()).chain(arguments);
    words.collect::<Vec<_>>().join(" ")
}

/// A line of progress.
#[allow(clippy::print_stderr, reason = "this is a program for a terminal")]
pub(crate) fn say(text: &str) {
    eprintln!("xtask: {text}");
}
