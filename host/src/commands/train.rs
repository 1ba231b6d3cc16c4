//! `train`: a weight phase, or training on trajectories that are there.

use std::process::ExitCode;

use crate::{cli::Train, context::Context, failure::CommandResult, training};

pub(crate) fn execute(context: &Context, arguments: &Train) -> CommandResult {
    training::run(context, arguments)?;
    Ok(ExitCode::SUCCESS)
}
