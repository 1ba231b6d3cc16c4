//! `inspect`: what a module is and what it may do.

use std::process::ExitCode;

use serde_json::json;
use whale_runtime::{
    contract,
    episode::{self, Outcome},
    gate::Kind,
    limits::Unit,
};

use crate::{
    cli::Inspect,
    context::{self, Context},
    failure::{CommandResult, Failure},
    printer,
};

pub(crate) fn execute(context: &Context, arguments: &Inspect) -> CommandResult {
    let limits = context::limits(&arguments.limits)?;
    let sandbox = context.sandbox(1, &limits)?;
    let (harness, measured) = context::block_on(async {
        let harness = context.load(&sandbox, &arguments.module, &limits).await?;
        let measured = episode::measure(&sandbox, &harness, &limits).await;
        sandbox.close().await;
        let measured =
            measured.map_err(|error| context::sandbox_failure(error, &arguments.module))?;
        Ok((harness, measured))
    })?;
    let start = measured.map_err(|outcome| {
        let why = match outcome {
            Outcome::Limit { hit } => hit.to_string(),
            Outcome::Trapped { trap } => trap,
            other => format!("{other:?}"),
        };
        Failure::harness(anyhow::anyhow!("the module does not start: {why}"))
    })?;
    let shape = &harness.shape;
    let kind = match shape.kind {
        Kind::Core => "core module",
        Kind::Component => "component",
    };
    let abilities = abilities(&shape.imports);
    if arguments.json {
        let report = json!({
            "digest": harness.digest,
            "kind": shape.kind,
            "contract": contract::VERSION,
            "bytes": shape.bytes,
            "functions": shape.functions,
            "imports": shape.imports,
            "may": abilities,
            "start": {
                "fuel": start.fuel,
                "memory": start.memory,
                "table-elements": start.table_elements,
            },
        });
        printer::line(&report.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("module", format!("{} ({kind})", arguments.module.display())),
        row("digest", harness.digest.to_string()),
        row("contract", contract::VERSION.to_owned()),
        row(
            "size",
            format!(
                "{} KiB, {} functions",
                shape.bytes.div_ceil(1024),
                shape.functions
            ),
        ),
        row(
            "start-up",
            format!(
                "{} fuel, {} of memory, {} table elements",
                start.fuel,
                Unit::Bytes.format(start.memory),
                start.table_elements
            ),
        ),
    ];
    let may = if abilities.is_empty() {
        vec!["nothing but compute"]
    } else {
        abilities
    };
    rows.extend(may.iter().map(|ability| row("may", (*ability).to_owned())));
    rows.push(row(
        "may not",
        "open files, reach a network, read a real clock or environment".to_owned(),
    ));
    rows.extend(
        shape
            .imports
            .iter()
            .map(|import| row("imports", import.clone())),
    );
    printer::table(&rows);
    Ok(ExitCode::SUCCESS)
}

/// What the imports let a harness do.
fn abilities(imports: &[String]) -> Vec<&'static str> {
    [
        ("whale:harness/model", "call the model"),
        ("whale:harness/search", "search the task's index"),
        ("whale:harness/code", "run programs in the code executor"),
        ("whale:harness/environment", "act in the task's environment"),
        ("whale:harness/log", "write notes into the trace"),
        (
            "wasi_snapshot_preview1",
            "print to a capped sink, read a seeded clock and seeded randomness",
        ),
    ]
    .into_iter()
    .filter(|(interface, _)| imports.iter().any(|import| import.starts_with(interface)))
    .map(|(_, ability)| ability)
    .collect()
}
