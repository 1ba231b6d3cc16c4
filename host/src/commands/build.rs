//! `build`: from a folder to a module.

use std::{path::PathBuf, process::ExitCode, time::Instant};

use anyhow::anyhow;

use crate::{
    cli::Build,
    context::{self, Context},
    failure::{CommandResult, Failure},
    printer,
};

pub(crate) fn execute(context: &Context, arguments: &Build) -> CommandResult {
    let folder = &arguments.folder;
    if !folder.is_dir() {
        return Err(
            Failure::user(anyhow!("`{}` is no folder", folder.display()))
                .hint("`whale-host new FOLDER` makes a harness to start from"),
        );
    }
    let output = match &arguments.output {
        Some(output) => output.clone(),
        None => default_output(folder)?,
    };
    let limits = context::limits(&arguments.limits)?;
    let builder = context.builder()?;
    let start = Instant::now();
    let built = context::block_on(async {
        builder
            .build(folder, &limits)
            .await
            .map_err(context::build_failure)
    })?;
    whale_runtime::build::write(&output, &built.wasm).map_err(context::build_failure)?;
    if !built.warnings.trim().is_empty() {
        printer::error(built.warnings.trim_end());
    }
    printer::line(&format!(
        "built `{}` in {:.2} s{}: {} KiB, contract {}, wrote `{}`",
        built.manifest.name,
        start.elapsed().as_secs_f64(),
        if built.cached {
            " (same source as before)"
        } else {
            ""
        },
        built.wasm.len().div_ceil(1024),
        whale_runtime::contract::VERSION,
        output.display(),
    ));
    Ok(ExitCode::SUCCESS)
}

fn default_output(folder: &std::path::Path) -> Result<PathBuf, Failure> {
    let full = folder
        .canonicalize()
        .map_err(|error| context::unreadable(folder, error))?;
    let name = full.file_name().ok_or_else(|| {
        Failure::user(anyhow!("`{}` has no name", folder.display()))
            .hint("say where with `-o FILE`")
    })?;
    Ok(PathBuf::from(name).with_extension("wasm"))
}
