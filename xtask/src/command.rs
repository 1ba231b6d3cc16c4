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
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_this_package(&mut cargo);
    cargo
}

/// Takes away what `cargo run` says of this package: build scripts look at such variables, and would
/// run again each time that cargo is called from here and then from a shell.
pub(crate) fn forget_this_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
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
