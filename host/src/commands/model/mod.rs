//! `model`: fetch, list and describe local models.

mod info;
mod list;
mod pull;

use crate::{
    cli::{ModelCommand, ModelTask},
    context::Context,
    failure::CommandResult,
};

pub(crate) fn execute(context: &Context, command: &ModelCommand) -> CommandResult {
    match &command.task {
        ModelTask::Pull(arguments) => pull::execute(context, arguments),
        ModelTask::List => list::execute(context),
        ModelTask::Info(arguments) => info::execute(context, arguments),
    }
}
