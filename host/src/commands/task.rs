//! `task check`: what is wrong with a task's items.

use std::process::ExitCode;

use anyhow::anyhow;
use serde_json::json;
use whale_tasks::task::Task;

use crate::{
    cli::{TaskCheck, TaskCommand, TaskTask},
    context::Context,
    failure::{CommandResult, Failure},
    printer, tasks,
};

/// Findings that are shown.
const SHOWN: usize = 200;

pub(crate) fn execute(context: &Context, command: &TaskCommand) -> CommandResult {
    let TaskTask::Check(arguments) = &command.task;
    check(context, arguments)
}

fn check(context: &Context, arguments: &TaskCheck) -> CommandResult {
    let folder = tasks::folder(context, &arguments.task)?;
    let (settings, items, findings) = Task::check(&folder).map_err(tasks::failure)?;
    let fatal = findings.iter().filter(|finding| finding.fatal).count();
    // Splits can only be made of items that are right.
    let task = (fatal == 0).then(|| Task::open(&folder)).transpose();
    if arguments.json {
        let splits = task.as_ref().ok().and_then(Option::as_ref).map(Task::sizes);
        let shown = json!({
            "task": settings.name, "items": items, "findings": findings, "splits": splits,
        });
        printer::line(&shown.to_string());
    } else {
        for finding in findings.iter().take(SHOWN) {
            let kind = if finding.fatal { "error" } else { "warning" };
            printer::line(&printer::shown(&format!(
                "{kind}: {}: {}",
                finding.place, finding.what
            )));
        }
        if findings.len() > SHOWN {
            printer::line(&format!("and {} more", findings.len() - SHOWN));
        }
    }
    let task = task.map_err(tasks::failure)?;
    let Some(task) = task else {
        return Err(Failure::user(anyhow!(
            "the task `{}` can't be used: {fatal} of its {items} items are wrong",
            settings.name
        )));
    };
    if !arguments.json {
        let sizes = task.sizes();
        let sizes: Vec<String> = sizes
            .iter()
            .map(|(split, size)| format!("{split} {size}"))
            .collect();
        printer::table(&[
            vec!["task".to_owned(), printer::shown(&settings.name)],
            vec!["items".to_owned(), items.to_string()],
            vec!["warnings".to_owned(), findings.len().to_string()],
            vec!["splits".to_owned(), sizes.join(", ")],
        ]);
    }
    Ok(ExitCode::SUCCESS)
}
