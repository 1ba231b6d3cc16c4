//! `compare`: two harnesses, or two adapters, on the same items and seeds.

use std::{path::Path, process::ExitCode};

use anyhow::anyhow;
use serde_json::json;
use whale_optimizer::evaluate::{CONFIDENCE, Summary, pairs};
use whale_tasks::statistics;

use crate::{
    cli::{Compare, LocalArgs},
    context::{self, Context},
    evaluation::{self, Plan, Results},
    failure::{CommandResult, Failure},
    model, printer,
};

pub(crate) fn execute(context: &Context, arguments: &Compare) -> CommandResult {
    let second = arguments.b.as_deref().unwrap_or(&arguments.a);
    if arguments.b.is_none() && arguments.adapter_a == arguments.adapter_b {
        return Err(Failure::user(anyhow!("there is nothing to compare with"))
            .hint("name a second harness, or another adapter with `--adapter-b`"));
    }
    let plan = Plan::open(context, &arguments.how)?;
    let a = side(
        context,
        arguments,
        &plan,
        &arguments.a,
        arguments.adapter_a.as_deref(),
    )?;
    let b = side(
        context,
        arguments,
        &plan,
        second,
        arguments.adapter_b.as_deref(),
    )?;
    let pairs = pairs(&a.entries, &b.entries);
    let found = statistics::compare(&pairs, CONFIDENCE, arguments.how.seed)
        .ok_or_else(|| Failure::infrastructure(anyhow!("no item was scored on both sides")))?;
    let a = Summary::new(a.header, &a.entries);
    let b = Summary::new(b.header, &b.entries);
    let void = a.void || b.void;
    if arguments.how.json {
        printer::line(&json!({ "a": a, "b": b, "comparison": found, "void": void }).to_string());
    } else {
        evaluation::comparison(&a, &b, &found);
    }
    if void {
        return Ok(Failure::infrastructure(anyhow!(
            "more than 2 % of the episodes failed for no fault of the harness: the comparison is void"
        ))
        .hint("the same command runs them again")
        .report());
    }
    Ok(ExitCode::SUCCESS)
}

/// One side; its model is gone before the other's is loaded.
fn side(
    context: &Context,
    arguments: &Compare,
    plan: &Plan,
    harness: &Path,
    adapter: Option<&Path>,
) -> Result<Results, Failure> {
    let local = LocalArgs {
        adapter: adapter.map(Path::to_owned),
        device: arguments.device.clone(),
        f32: arguments.f32,
    };
    let model = model::open(context, &arguments.how.model, &local)?;
    let sandbox = context.sandbox(plan.jobs(), plan.limits())?;
    context::block_on(async {
        let ran = plan
            .run(context, &sandbox, harness, model, None, None)
            .await;
        sandbox.close().await;
        ran
    })
}
