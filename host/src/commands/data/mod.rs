//! `data`: fetch data sets and make tasks of them.

mod pull;

use std::process::ExitCode;

use whale_tasks::data::SETS;

use crate::{
    cli::{DataCommand, DataTask},
    context::Context,
    failure::CommandResult,
    printer,
};

pub(crate) fn execute(context: &Context, command: &DataCommand) -> CommandResult {
    match &command.task {
        DataTask::Pull(arguments) => pull::execute(context, arguments),
        DataTask::List => list(context),
    }
}

fn list(context: &Context) -> CommandResult {
    let mut rows = vec![
        ["name", "here", "licence", "what", "from"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for set in SETS {
        let here = context.tasks().join(set.name).exists();
        let mut licences: Vec<&str> = set.sources.iter().map(|source| source.licence).collect();
        licences.dedup();
        let addresses = set.sources.iter().map(|source| source.address);
        let addresses: Vec<&str> = addresses.filter(|address| !address.is_empty()).collect();
        rows.push(vec![
            set.name.to_owned(),
            if here { "yes" } else { "no" }.to_owned(),
            licences.join(", "),
            set.what.to_owned(),
            addresses.join(" "),
        ]);
    }
    printer::table(&rows);
    Ok(ExitCode::SUCCESS)
}
