//! Training, and what comes of it.

use std::path::PathBuf;

use clap::Args;

/// Fine-tune a model by rejection sampling under a fixed harness
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whale-host train whale.toml
  whale-host train whale.toml --out runs/first --resume
  whale-host train whale.toml --from run/rollouts/000001.jsonl --out offline/

docs/training.md explains the settings. Started again after a stop, a run goes on after its last \
step. What was learned is in RUN/learned.")]
pub(crate) struct Train {
    /// The run's settings; paths in it are relative to it
    pub(crate) settings: PathBuf,

    /// The run's folder
    #[arg(long, short, default_value = "run", value_name = "RUN")]
    pub(crate) out: PathBuf,

    /// Learn from these trajectories, without rollouts
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,

    /// Only go on with a run that is there; without it, one that is there goes on as well
    #[arg(long)]
    pub(crate) resume: bool,

    /// Where the model computes: cpu, cuda:N or metal [default: cpu]
    #[arg(long)]
    pub(crate) device: Option<String>,

    /// Print each step as JSON, one a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Take out of a run what was learned, or what it was learned from
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whale-host export run/ --adapter my-adapter/
  whale-host export run/ --merged my-model/
  whale-host export run/ --dataset sequences.jsonl")]
pub(crate) struct Export {
    /// The run's folder
    pub(crate) run: PathBuf,

    #[command(flatten)]
    pub(crate) what: Exported,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Exported {
    /// Write the adapter as PEFT has it into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter: Option<PathBuf>,

    /// Write a model of its own into this folder: safetensors in 32 bits, configuration, tokenizer
    #[arg(long, value_name = "DIR")]
    pub(crate) merged: Option<PathBuf>,

    /// Write the sequences that were kept into this file: token ids and labels, one JSON object a
    /// line
    #[arg(long, value_name = "FILE")]
    pub(crate) dataset: Option<PathBuf>,
}
