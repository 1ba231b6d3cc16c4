//! `model list`: what is there, and what can be fetched.

use std::{fs, path::Path, process::ExitCode};

use super::pull::KNOWN;
use crate::{context::Context, failure::CommandResult, printer};

pub(crate) fn execute(context: &Context) -> CommandResult {
    let folder = context.models();
    let mut rows = vec![
        ["name", "size", "licence", "what"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut here: Vec<String> = Vec::new();
    let entries = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    for entry in entries {
        let path = entry.path();
        let is_model = path.join("config.json").exists()
            || path
                .extension()
                .is_some_and(|extension| extension == "gguf");
        if let Some(stem) = path.file_stem().filter(|_| is_model) {
            here.push(stem.to_string_lossy().into_owned());
        }
    }
    here.sort();
    for name in &here {
        let known = KNOWN.iter().find(|known| known.name == name);
        rows.push(vec![
            printer::shown(name),
            size(&folder, name),
            known.map_or("", |known| known.licence).to_owned(),
            known.map_or("", |known| known.what).to_owned(),
        ]);
    }
    for known in KNOWN
        .iter()
        .filter(|known| !here.iter().any(|name| name == known.name))
    {
        let what = format!(
            "{}; not here: `whale-host model pull {}`",
            known.what, known.name
        );
        rows.push(vec![
            known.name.to_owned(),
            String::new(),
            known.licence.to_owned(),
            what,
        ]);
    }
    printer::table(&rows);
    Ok(ExitCode::SUCCESS)
}

/// A file's size, or that of a folder's files.
fn size(folder: &Path, name: &str) -> String {
    let file = folder.join(format!("{name}.gguf"));
    let bytes: u64 = match fs::metadata(file) {
        Ok(metadata) => metadata.len(),
        Err(_) => {
            let entries = fs::read_dir(folder.join(name)).into_iter().flatten();
            entries
                .filter_map(|entry| entry.ok()?.metadata().ok())
                .map(|m| m.len())
                .sum()
        }
    };
    format!("{} MB", bytes / 1_000_000)
}
