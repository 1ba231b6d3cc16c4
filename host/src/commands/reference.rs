//! `completions` and `man`: from the same definitions as the command line.

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::{
    cli::{Cli, Completions},
    failure::{CommandResult, Failure},
    printer,
};

pub(crate) fn completions(arguments: &Completions) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Cli::command(),
        "whale-host",
        &mut script,
    );
    printer::line(String::from_utf8_lossy(&script).trim_end());
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn manual() -> CommandResult {
    let mut page = Vec::new();
    let rendered = pages(Cli::command())
        .try_for_each(|command| clap_mangen::Man::new(command).render(&mut page));
    rendered.map_err(Failure::infrastructure)?;
    printer::line(String::from_utf8_lossy(&page).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// The program and each of its commands.
fn pages(mut program: clap::Command) -> impl Iterator<Item = clap::Command> {
    program.build();
    let commands: Vec<clap::Command> = program
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
        .cloned()
        .collect();
    std::iter::once(program).chain(commands)
}
