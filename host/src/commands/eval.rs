//! `eval`: mean@k of a harness on a task.

use std::{fs, process::ExitCode};

use whale_optimizer::evaluate::Summary;

use crate::{
    cli::Eval,
    context::{self, Context},
    evaluation::{self, Plan},
    failure::{CommandResult, Failure, Kind},
    model, printer,
};

pub(crate) fn execute(context: &Context, arguments: &Eval) -> CommandResult {
    let plan = Plan::open(context, &arguments.how)?;
    let model = model::open(context, &arguments.how.model, &arguments.local)?;
    let sandbox = context.sandbox(plan.jobs(), plan.limits())?;
    let results = context::block_on(async {
        let out = arguments.out.as_deref();
        let traces = arguments.traces.as_deref();
        let harness = &arguments.harness;
        let ran = plan
            .run(context, &sandbox, harness, model, out, traces)
            .await;
        sandbox.close().await;
        ran
    })?;
    let summary = Summary::new(results.header, &results.entries);
    let json = serde_json::to_vec_pretty(&summary).map_err(Failure::infrastructure)?;
    let beside = results.path.with_extension("summary.json");
    fs::write(&beside, json).map_err(|error| context::unreadable(&beside, error))?;
    if arguments.how.json {
        let json = serde_json::to_string(&summary).map_err(Failure::infrastructure)?;
        printer::line(&json);
    } else {
        evaluation::summary(&summary, arguments.how.price, &results.path);
    }
    Ok(if summary.void {
        ExitCode::from(Kind::Infrastructure.code())
    } else {
        ExitCode::SUCCESS
    })
}
