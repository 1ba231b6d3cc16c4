//! `limits`: every limit, its value, where that comes from, what it does.

use std::process::ExitCode;

use serde_json::json;
use whale_runtime::{Limits, limits::Scope};

use crate::{cli::LimitsCommand, context, failure::CommandResult, printer};

pub(crate) fn execute(arguments: &LimitsCommand) -> CommandResult {
    let limits = context::limits(&arguments.limits)?;
    let rows = Limits::table().iter().map(|limit| {
        let value = limits.get(limit.name).unwrap_or(limit.default);
        let origin = if value == limit.default {
            "default"
        } else {
            "flag"
        };
        (limit, value, origin)
    });
    if arguments.json {
        for (limit, value, origin) in rows {
            let row = json!({
                "name": limit.name,
                "value": value,
                "origin": origin,
                "scope": scope(limit.scope),
                "about": limit.about,
            });
            printer::line(&row.to_string());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["LIMIT", "VALUE", "FROM", "FOR", "BOUNDS"]
        .map(str::to_owned)
        .to_vec();
    let rows = rows.map(|(limit, value, origin)| {
        vec![
            limit.name.to_owned(),
            limit.unit.format(value),
            origin.to_owned(),
            scope(limit.scope).to_owned(),
            limit.about.to_owned(),
        ]
    });
    printer::table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Build => "build",
        Scope::Module => "module",
        Scope::Episode => "episode",
        Scope::Code => "program",
    }
}
