//! One file a command.

mod build;
mod chat;
mod compare;
mod data;
mod doctor;
mod eval;
mod export;
mod grade;
mod index;
mod inspect;
mod limits;
mod model;
mod new;
mod reference;
mod replay;
mod run;
mod serve;
mod task;
mod train;

use crate::{
    cli::{Cli, Command},
    context::Context,
    failure::CommandResult,
};

pub(crate) fn execute(cli: Cli) -> CommandResult {
    let context = Context::new(cli.unsafe_no_jail);
    match cli.command {
        Command::New(arguments) => new::execute(&arguments),
        Command::Build(arguments) => build::execute(&context?, &arguments),
        Command::Run(arguments) => run::execute(&context?, &arguments),
        Command::Inspect(arguments) => inspect::execute(&context?, &arguments),
        Command::Replay(arguments) => replay::execute(&context?, &arguments),
        Command::Eval(arguments) => eval::execute(&context?, &arguments),
        Command::Compare(arguments) => compare::execute(&context?, &arguments),
        Command::Train(arguments) => train::execute(&context?, &arguments),
        Command::Export(arguments) => export::execute(&context?, &arguments),
        Command::Grade(arguments) => grade::execute(&context?, &arguments),
        Command::Data(arguments) => data::execute(&context?, &arguments),
        Command::Task(arguments) => task::execute(&context?, &arguments),
        Command::Index(arguments) => index::execute(&context?, &arguments),
        Command::Model(arguments) => model::execute(&context?, &arguments),
        Command::Chat(arguments) => chat::execute(&context?, &arguments),
        Command::Serve(arguments) => serve::execute(&context?, &arguments),
        Command::Limits(arguments) => limits::execute(&arguments),
        Command::Doctor(arguments) => doctor::execute(&context?, &arguments),
        Command::Completions(arguments) => reference::completions(&arguments),
        Command::Man(_) => reference::manual(),
    }
}
