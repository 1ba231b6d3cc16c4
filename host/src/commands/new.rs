//! `new`: a folder with a harness that builds and runs as it is.

use std::{fs, path::Path, process::ExitCode};

use anyhow::anyhow;

use crate::{
    cli::New,
    failure::{CommandResult, Failure},
    printer,
};

/// A template: the name that it has itself, and its files.
type Template = (&'static str, &'static [(&'static str, &'static str)]);

const MATH: Template = (
    "{{name}}",
    &[
        (
            "harness.toml",
            include_str!("../../templates/math/harness.toml"),
        ),
        (
            "src/lib.rs",
            include_str!("../../templates/math/src/lib.rs"),
        ),
        (
            "prompts/solve.txt",
            include_str!("../../templates/math/prompts/solve.txt"),
        ),
    ],
);

const SEARCHQA: Template = (
    "h0-searchqa",
    &[
        (
            "harness.toml",
            include_str!("../../../guest-harnesses/h0-searchqa/harness.toml"),
        ),
        (
            "src/lib.rs",
            include_str!("../../../guest-harnesses/h0-searchqa/src/lib.rs"),
        ),
        (
            "prompts/ask.txt",
            include_str!("../../../guest-harnesses/h0-searchqa/prompts/ask.txt"),
        ),
        (
            "prompts/answer.txt",
            include_str!("../../../guest-harnesses/h0-searchqa/prompts/answer.txt"),
        ),
    ],
);

const CHESS: Template = (
    "h0-chess",
    &[
        (
            "harness.toml",
            include_str!("../../../guest-harnesses/h0-chess/harness.toml"),
        ),
        (
            "src/lib.rs",
            include_str!("../../../guest-harnesses/h0-chess/src/lib.rs"),
        ),
        (
            "prompts/move.txt",
            include_str!("../../../guest-harnesses/h0-chess/prompts/move.txt"),
        ),
    ],
);

pub(crate) fn execute(arguments: &New) -> CommandResult {
    let folder = &arguments.folder;
    let name = folder
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        let error = anyhow!(
            "`{}` does not end in a name for a harness",
            folder.display()
        );
        return Err(Failure::user(error).hint("1 to 64 letters, digits, `-` or `_`"));
    }
    if folder.exists() {
        return Err(Failure::user(anyhow!(
            "`{}` exists already",
            folder.display()
        )));
    }
    let (template, next) = match arguments.domain.as_str() {
        "searchqa" => (SEARCHQA, "eval NAME --task searchqa --limit 16"),
        "chess" => (CHESS, "eval NAME --task chess --limit 16"),
        _ => (MATH, "run NAME --prompt 'What is 17 + 25?'"),
    };
    write(folder, name, template).map_err(|error| {
        let context = format!("`{}` could not be written", folder.display());
        Failure::infrastructure(anyhow::Error::new(error).context(context))
    })?;
    let shown = folder.display();
    printer::line(&format!("made `{shown}`: a {} harness", arguments.domain));
    printer::line(&format!(
        "next: whale-host {}",
        next.replace("NAME", &shown.to_string())
    ));
    Ok(ExitCode::SUCCESS)
}

fn write(folder: &Path, name: &str, (own, files): Template) -> std::io::Result<()> {
    for (path, text) in files {
        let file = folder.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(file, text.replace(own, name))?;
    }
    Ok(())
}
