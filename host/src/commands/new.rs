//! `new`: a folder with a harness that builds and runs as it is.

use std::{fs, path::Path, process::ExitCode};

use anyhow::anyhow;

use crate::{
    cli::New,
    failure::{CommandResult, Failure},
    printer,
};

/// The files of each domain's template.
const MATH: &[(&str, &str)] = &[
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
];

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
    write(folder, name).map_err(|error| {
        let context = format!("`{}` could not be written", folder.display());
        Failure::infrastructure(anyhow::Error::new(error).context(context))
    })?;
    let shown = folder.display();
    printer::line(&format!("made `{shown}`: a {} harness", arguments.domain));
    printer::line(&format!(
        "next: whale-host run {shown} --prompt 'What is 17 + 25?'"
    ));
    Ok(ExitCode::SUCCESS)
}

fn write(folder: &Path, name: &str) -> std::io::Result<()> {
    for (path, text) in MATH {
        let file = folder.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(file, text.replace("{{name}}", name))?;
    }
    Ok(())
}
