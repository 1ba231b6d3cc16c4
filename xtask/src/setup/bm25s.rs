//! The Python package bm25s, to compare the index of passages with.

use std::path::PathBuf;

use anyhow::Result;

use super::environment;

/// The package (MIT), what it stems with, and what some of its back ends need.
const PACKAGES: [&str; 3] = ["bm25s==0.3.16", "PyStemmer", "numba"];

/// A Python that has it.
pub(crate) fn install() -> Result<PathBuf> {
    environment::install("bm25s-0.3.16", &PACKAGES, "a benchmark")
}
