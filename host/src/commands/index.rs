//! `index`: build and ask an index of passages.

use std::process::ExitCode;

use serde_json::json;
use whale_runtime::limits::Unit;
use whale_search::{Bm25, Index, SearchError};

use crate::{
    cli::{IndexBuild, IndexCommand, IndexSearch, IndexTask},
    context::Context,
    failure::{CommandResult, Failure},
    model, printer,
};

pub(crate) fn execute(context: &Context, command: &IndexCommand) -> CommandResult {
    match &command.task {
        IndexTask::Build(arguments) => build(context, arguments),
        IndexTask::Search(arguments) => search(arguments),
    }
}

fn build(context: &Context, arguments: &IndexBuild) -> CommandResult {
    let encoder = arguments.encoder.as_deref();
    let encoder = encoder.map(|name| model::path(context, name)).transpose()?;
    let bm25 = Bm25 {
        k1: arguments.k1,
        b: arguments.b,
    };
    let built = Index::build(
        &arguments.passages,
        &arguments.output,
        bm25,
        encoder.as_deref(),
    )
    .map_err(|error| {
        let hint = match &error {
            SearchError::Line { .. } => {
                Some("a passage looks like {\"id\": \"p1\", \"title\": \"Rhine\", \"text\": \"…\"}")
            }
            _ => None,
        };
        let failure = Failure::user(error);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    printer::line(&printer::shown(&format!(
        "{} passages, {}, in `{}`",
        built.passages,
        Unit::Bytes.format(built.bytes),
        arguments.output.display()
    )));
    Ok(ExitCode::SUCCESS)
}

fn search(arguments: &IndexSearch) -> CommandResult {
    let index = Index::open(&arguments.index).map_err(Failure::user)?;
    let hits = index
        .find(&arguments.query, arguments.k)
        .map_err(Failure::infrastructure)?;
    for hit in &hits {
        if arguments.json {
            let hit = json!({
                "id": hit.id, "title": hit.title, "text": hit.text, "score": hit.score,
            });
            printer::line(&hit.to_string());
        } else {
            let head = format!("{:.2}  {}  {}", hit.score, hit.id, hit.title);
            printer::line(&printer::shown(&format!("{head}\n{}\n", hit.text)));
        }
    }
    if hits.is_empty() && !arguments.json {
        printer::error("no passage has any of these words");
    }
    Ok(ExitCode::SUCCESS)
}
