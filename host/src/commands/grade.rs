//! `grade`: one answer, and why.

use std::process::ExitCode;

use anyhow::anyhow;
use whale_tasks::{
    grade::{Grader, MathGrader, QaGrader},
    task::Settings,
};

use crate::{
    cli::Grade,
    context::Context,
    failure::{CommandResult, Failure},
    printer, tasks,
};

pub(crate) fn execute(context: &Context, arguments: &Grade) -> CommandResult {
    let mut grader = grader(context, &arguments.task)?;
    if arguments.strict {
        match &mut grader {
            Grader::Math(math) => math.strict = true,
            _ => return Err(Failure::user(anyhow!("`--strict` goes with mathematics"))),
        }
    }
    if matches!(grader, Grader::Chess { .. }) {
        return Err(
            Failure::user(anyhow!("a puzzle is graded by its moves, not by an answer"))
                .hint("`whale-host eval` plays and grades puzzles"),
        );
    }
    let verdict = grader.grade(&arguments.answer, &arguments.reference);
    if arguments.json {
        let json = serde_json::to_string(&verdict).map_err(Failure::infrastructure)?;
        printer::line(&json);
        return Ok(ExitCode::SUCCESS);
    }
    let row = |name: &str, text: &str| vec![name.to_owned(), printer::shown(text)];
    printer::table(&[
        row(
            "verdict",
            if verdict.is_right() { "right" } else { "wrong" },
        ),
        row("graded", &verdict.graded),
        row("why", &verdict.why),
    ]);
    Ok(ExitCode::SUCCESS)
}

/// A domain's usual grader, or a task's own.
fn grader(context: &Context, name: &str) -> Result<Grader, Failure> {
    match (name, tasks::folder(context, name)) {
        (_, Ok(folder)) => Ok(Settings::read(&folder).map_err(tasks::failure)?.grader),
        ("math", _) => Ok(Grader::Math(MathGrader::default())),
        ("searchqa", _) => Ok(Grader::Qa(QaGrader::default())),
        ("chess", _) => Ok(Grader::Chess { paper: false }),
        (_, Err(missing)) => Err(missing),
    }
}
