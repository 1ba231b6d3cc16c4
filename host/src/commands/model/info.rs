//! `model info`: what a checkpoint is, from its headers.

use std::process::ExitCode;

use serde_json::json;
use whale_lm::{Description, Model};

use crate::{
    cli::ModelInfo,
    context::Context,
    failure::{CommandResult, Failure},
    model, printer,
};

pub(crate) fn execute(context: &Context, arguments: &ModelInfo) -> CommandResult {
    let path = model::path(context, &arguments.model)?;
    let description = Model::describe(&path).map_err(Failure::user)?;
    if arguments.json {
        printer::line(&as_json(&description).to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let kinds: Vec<String> = description
        .kinds
        .iter()
        .map(|(kind, share)| format!("{:.0} % {kind}", share * 100.0))
        .collect();
    let row = |name: &str, value: String| vec![name.to_owned(), printer::shown(&value)];
    printer::table(&[
        row("file", path.display().to_string()),
        row("architecture", description.architecture.to_string()),
        row(
            "weights",
            format!("{:.1} million", description.weights as f64 / 1e6),
        ),
        row("stored as", kinds.join(", ")),
        row("layers", description.layers.to_string()),
        row("width", description.width.to_string()),
        row("vocabulary", description.vocabulary.to_string()),
        row("context", description.context.to_string()),
        row(
            "chat template",
            if description.chat { "yes" } else { "no" }.to_owned(),
        ),
        row("sha256", description.hash.clone()),
    ]);
    Ok(ExitCode::SUCCESS)
}

fn as_json(description: &Description) -> serde_json::Value {
    let kinds: serde_json::Map<String, serde_json::Value> = description
        .kinds
        .iter()
        .map(|(kind, share)| (kind.clone(), json!(share)))
        .collect();
    json!({
        "architecture": description.architecture.name(),
        "weights": description.weights,
        "kinds": kinds,
        "layers": description.layers,
        "width": description.width,
        "vocabulary": description.vocabulary,
        "context": description.context,
        "chat": description.chat,
        "sha256": description.hash,
    })
}
