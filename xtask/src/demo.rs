//! A small real model answers a real question through a sandboxed harness.

use std::process::Command;

use anyhow::Result;

use crate::{
    command::{self, say},
    paths, setup,
};

const QUESTION: &str = "What is 17 + 25?";

pub(crate) fn run() -> Result<()> {
    setup::all()?;
    say("building whale-host (the first time, this takes about 12 minutes on two cores)");
    let host = paths::host()?;
    let harness = paths::root().join("guest-harnesses/math");
    let work = paths::target()?.join("demo");
    std::fs::create_dir_all(&work)?;
    let (module, trace) = (work.join("math.wasm"), work.join("trace.json"));

    step(
        Command::new(&host)
            .arg("build")
            .arg(&harness)
            .arg("-o")
            .arg(&module),
    )?;
    step(Command::new(&host).arg("inspect").arg(&module))?;
    say("a model of 135 million parameters is often wrong; the trace shows what it wrote");
    step(
        Command::new(&host)
            .arg("run")
            .arg(&module)
            .args(["--prompt", QUESTION, "--trace"])
            .arg(&trace),
    )?;
    step(Command::new(&host).arg("replay").arg(&trace))
}

fn step(command: &mut Command) -> Result<()> {
    let words = command.get_args().map(|argument| {
        let text = argument.to_string_lossy();
        if text.contains(' ') {
            format!("'{text}'")
        } else {
            text.into_owned()
        }
    });
    say(&format!(
        "$ whale-host {}",
        words.collect::<Vec<_>>().join(" ")
    ));
    command::run(command)
}
