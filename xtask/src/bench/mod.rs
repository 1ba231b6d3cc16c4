//! Benchmarks: ratios of two things that are measured in one run.

mod lm;
mod sandbox;
mod table;
mod tasks;
mod trainer;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

#[derive(Args)]
pub(crate) struct Options {
    /// What to measure
    suite: Suite,
    /// Write the rows to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// The Python to compare with [default: the one behind `python3`]
    #[arg(long)]
    python: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Suite {
    /// Builds, episodes and the code executor
    Sandbox,
    /// The language-model engine, against llama.cpp
    Lm,
    /// The index of passages against bm25s, graders, evaluations
    Tasks,
    /// Steps of training against PyTorch with PEFT, and a short weight phase
    Trainer,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let rows = match options.suite {
        Suite::Sandbox => sandbox::rows(options.python.clone())?,
        Suite::Lm => lm::rows()?,
        Suite::Tasks => tasks::rows()?,
        Suite::Trainer => trainer::rows()?,
    };
    table::print(&rows);
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}
