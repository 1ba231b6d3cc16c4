//! What can be written on the command line. Completions and the manual come from here too.

mod evaluation;
mod training;

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub(crate) use evaluation::{
    Compare, DataCommand, DataPull, DataTask, Eval, EvaluationArgs, Grade, IndexBuild,
    IndexCommand, IndexSearch, IndexTask, TaskCheck, TaskCommand, TaskTask,
};

pub(crate) use training::{Export, Train};

/// Run harnesses that nobody trusts around a language model.
///
/// A harness is Rust against a small SDK. It is built in a jail, compiled to WebAssembly, and run in
/// a sandbox that gives it model calls, search and a code executor, and nothing else.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Say more of what is done
    #[arg(long, short, global = true, help_heading = "Common options")]
    pub(crate) verbose: bool,

    /// Go on where the kernel offers no jail: untrusted code then runs with your rights
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) unsafe_no_jail: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 the harness failed; 2 the command or its input is wrong; 3 something else \
failed: a missing tool, a server, a disk.

The environment: WHALE_CACHE is the folder for toolchain, models and native code (otherwise \
`~/.cache/whale`); OPENAI_API_KEY is the key for `openai:` models; WHALE_API_KEY is the key that \
`serve` asks for; HF_ENDPOINT and HF_TOKEN are the model hub's address and your key there; WHALE_DATA is a \
folder with files of data sets; WHALE_LOG sets what is logged.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    New(New),
    Build(Build),
    Run(Run),
    Inspect(Inspect),
    Replay(Replay),
    Eval(Eval),
    Compare(Compare),
    Train(Train),
    Export(Export),
    Grade(Grade),
    Data(DataCommand),
    Task(TaskCommand),
    Index(IndexCommand),
    Model(ModelCommand),
    Chat(Chat),
    Serve(Serve),
    Limits(LimitsCommand),
    Doctor(Doctor),
    Completions(Completions),
    Man(Man),
}

/// Make a folder with a harness that builds and runs as it is
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host new my-harness --domain math")]
pub(crate) struct New {
    /// The folder to make; its name becomes the harness's
    pub(crate) folder: PathBuf,

    /// The kind of task
    #[arg(long, default_value = "math", value_parser = ["math", "searchqa", "chess"])]
    pub(crate) domain: String,
}

/// Build a harness in a jail, without trusting its source
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host build my-harness -o my-harness.wasm")]
pub(crate) struct Build {
    /// The harness's folder
    pub(crate) folder: PathBuf,

    /// Where to write the module [default: the folder's name with `.wasm`]
    #[arg(long, short)]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// Run a harness on one prompt or on many items, without trusting its code
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whale-host run my-harness.wasm --prompt 'What is 17 + 25?'
  whale-host run my-harness.wasm --prompt 'What is 17 + 25?' --model scripted:replies.jsonl --json
  whale-host run my-harness.wasm --items items.jsonl --jobs 8 --limit wall=20s

A line of an items file looks like {\"id\": \"q1\", \"prompt\": \"What is 17 + 25?\"}; \"fields\" may \
hold further texts by name.")]
pub(crate) struct Run {
    /// A module, or a harness's folder, which is built first
    pub(crate) harness: PathBuf,

    /// What to ask
    #[arg(long, required_unless_present = "items", conflicts_with = "items")]
    pub(crate) prompt: Option<String>,

    /// Many things to ask: one JSON object a line; the results are printed as one JSON line each
    #[arg(long)]
    pub(crate) items: Option<PathBuf>,

    /// Episodes for each item
    #[arg(long, default_value_t = 1, requires = "items", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rollouts: u32,

    /// Episodes at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) jobs: u32,

    /// local:NAME-OR-FILE, openai:URL#NAME, or scripted:FILE
    #[arg(long, default_value = "local:smollm2-135m")]
    pub(crate) model: String,

    #[command(flatten)]
    pub(crate) local: LocalArgs,

    /// Fixes everything that is random
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// Offer no code executor
    #[arg(long)]
    pub(crate) no_code: bool,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the record of the episode to this file; with `--items`, one file each to this folder
    #[arg(long)]
    pub(crate) trace: Option<PathBuf>,
}

/// Show what a module is and what it may do
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host inspect my-harness.wasm")]
pub(crate) struct Inspect {
    /// The module
    pub(crate) module: PathBuf,

    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// Run a recorded episode again without a model, and prove that it is the same
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host replay trace.json")]
pub(crate) struct Replay {
    /// The record that `run --trace` wrote
    pub(crate) trace: PathBuf,

    /// The module, if it is no longer in the cache
    #[arg(long)]
    pub(crate) harness: Option<PathBuf>,
}

/// Fetch, list and describe local models
#[derive(Debug, Args)]
pub(crate) struct ModelCommand {
    #[command(subcommand)]
    pub(crate) task: ModelTask,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelTask {
    Pull(ModelPull),
    /// List the models that are here and those that can be fetched by name
    List,
    Info(ModelInfo),
}

/// Fetch a model and check its hash
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whale-host model pull smollm2-135m
  whale-host model pull Qwen/Qwen3-0.6B")]
pub(crate) struct ModelPull {
    /// A known name, or OWNER/NAME on the model hub
    pub(crate) name: String,

    /// Ask only the hub or only the package [default: the hub, then the package]
    #[arg(long)]
    pub(crate) from: Option<Source>,

    /// Which state of a repository on the hub
    #[arg(long, default_value = "main")]
    pub(crate) revision: String,
}

/// Where a model comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Source {
    Hub,
    Package,
}

/// Say what a model is, from its headers
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host model info smollm2-135m")]
pub(crate) struct ModelInfo {
    /// A name in the cache, a GGUF file, or a folder with safetensors
    pub(crate) model: String,

    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Talk with a local model in the terminal
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host chat smollm2-135m")]
pub(crate) struct Chat {
    /// A name in the cache, a GGUF file, or a folder with safetensors
    pub(crate) model: String,

    #[command(flatten)]
    pub(crate) local: LocalArgs,

    /// What the model is told first
    #[arg(long)]
    pub(crate) system: Option<String>,

    /// The longest reply, in tokens
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_tokens: u32,

    /// 0 takes the likeliest token
    #[arg(long, default_value_t = 0.7)]
    pub(crate) temperature: f32,

    /// Fixes everything that is random
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

/// Serve a local model by OpenAI's protocol
#[derive(Debug, Args)]
#[command(after_help = "\
Example: whale-host serve smollm2-135m --port 8080

Requests that run when the server is told to stop (SIGTERM, Ctrl-C) have 30 seconds to end.")]
pub(crate) struct Serve {
    /// A name in the cache, a GGUF file, or a folder with safetensors
    pub(crate) model: String,

    /// The address to listen at; one that others can reach needs WHALE_API_KEY
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,

    /// The port to listen at; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    pub(crate) port: u16,

    /// A folder with such folders, which clients may load as models of their own
    #[arg(long, value_name = "DIR")]
    pub(crate) adapters: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) local: LocalArgs,

    /// Sequences in the running batch [default: 64]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) sequences: Option<u32>,

    /// Requests that may wait; more are refused with 429 [default: 1024]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) queue: Option<u32>,

    /// Memory for keys and values, in MiB [default: 1024]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) memory: Option<u32>,

    /// The longest prompt and reply together, in tokens [default: the model's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) context: Option<u32>,

    /// Threads that compute [default: one a processor]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
}

/// List every limit: its value, where that comes from, what it does
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host limits --limit wall=20s")]
pub(crate) struct LimitsCommand {
    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// Print them as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say what is there, what is missing, and how to get it
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host doctor")]
pub(crate) struct Doctor {
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host completions bash > /etc/bash_completion.d/whale-host")]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

/// Print the manual page
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host man > whale-host.1")]
pub(crate) struct Man {}

/// How a local model is run.
#[derive(Debug, Args)]
pub(crate) struct LocalArgs {
    /// A folder with a LoRA as PEFT writes it, for a local model
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter: Option<PathBuf>,

    /// Where a local model computes: cpu, cuda:N or metal [default: cpu]
    #[arg(long)]
    pub(crate) device: Option<String>,

    /// Widen a local model's weights to 32 bits: as a trainer computes, slower and larger
    #[arg(long)]
    pub(crate) f32: bool,
}

/// Settings of limits.
#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// Set a limit, such as wall=20s; `whale-host limits` lists them
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    pub(crate) limit: Vec<String>,
}
