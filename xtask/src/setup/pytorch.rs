//! PyTorch with PEFT, to compare the trainer with.

use std::path::PathBuf;

use anyhow::Result;

use super::environment;

/// Of these, PyTorch (BSD-3-Clause) brings 4 GB of libraries for devices that are not used here.
const PACKAGES: [&str; 3] = ["torch==2.15.0", "transformers==5.24.0", "peft==0.21.2"];

/// A Python that has it.
pub(crate) fn install() -> Result<PathBuf> {
    environment::install("pytorch-2.15.0", &PACKAGES, "a benchmark")
}
