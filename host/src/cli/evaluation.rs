//! Tasks, evaluations and what they stand on.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::LocalArgs;

/// Fetch data sets and make tasks of them
#[derive(Debug, Args)]
pub(crate) struct DataCommand {
    #[command(subcommand)]
    pub(crate) task: DataTask,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataTask {
    Pull(DataPull),
    /// List the data sets, where they come from, and which are here
    List,
}

/// Make a task from a data set
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whale-host data pull math
  whale-host data pull arithmetic
  whale-host data pull chess --from ~/downloads --items 5000")]
pub(crate) struct DataPull {
    /// math, searchqa, chess or arithmetic
    pub(crate) name: String,

    /// Take the files from this folder, or from a mirror's address [default: where they are
    /// published]
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) from: Option<String>,

    /// At most so many items
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) items: Option<u32>,

    /// Of what is drawn or generated
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// Take a file that is not the one that this was written for
    #[arg(long)]
    pub(crate) accept_changed: bool,
}

/// Look at tasks
#[derive(Debug, Args)]
pub(crate) struct TaskCommand {
    #[command(subcommand)]
    pub(crate) task: TaskTask,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskTask {
    Check(TaskCheck),
}

/// Find what is wrong with a task's items, line by line
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host task check my-task/")]
pub(crate) struct TaskCheck {
    /// A folder with `task.toml`, or the name of a task from `data pull`
    pub(crate) task: String,

    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Build and ask an index of passages
#[derive(Debug, Args)]
pub(crate) struct IndexCommand {
    #[command(subcommand)]
    pub(crate) task: IndexTask,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IndexTask {
    Build(IndexBuild),
    Search(IndexSearch),
}

/// Index a file of passages
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whale-host index build passages.jsonl -o wiki.idx
  whale-host model pull sentence-transformers/all-MiniLM-L6-v2
  whale-host index build passages.jsonl -o wiki.idx --encoder all-MiniLM-L6-v2

A line looks like {\"id\": \"p1\", \"title\": \"Rhine\", \"text\": \"The Rhine flows …\"}, or as \
Search-R1 has it: {\"id\": 1, \"contents\": \"\\\"Rhine\\\"\\nThe Rhine flows …\"}.")]
pub(crate) struct IndexBuild {
    /// The passages: one JSON object a line
    pub(crate) passages: PathBuf,

    /// The folder to make
    #[arg(long, short)]
    pub(crate) output: PathBuf,

    /// BM25: how much a word's repetition counts
    #[arg(long, default_value_t = 1.2)]
    pub(crate) k1: f64,

    /// BM25: how much a passage's length is held against it
    #[arg(long, default_value_t = 0.75)]
    pub(crate) b: f64,

    /// Find passages by what they are about, too: a BERT of sentences, a folder or a name in the
    /// cache
    #[arg(long, value_name = "MODEL")]
    pub(crate) encoder: Option<String>,
}

/// Find passages
#[derive(Debug, Args)]
#[command(after_help = "Example: whale-host index search wiki.idx 'where does the Rhine flow'")]
pub(crate) struct IndexSearch {
    /// The index
    pub(crate) index: PathBuf,

    /// What to look for; no sign is a command
    pub(crate) query: String,

    /// How many passages
    #[arg(short, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) k: u32,

    /// Print them as JSON, one a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Grade one answer, and say why
#[derive(Debug, Args)]
#[command(after_help = "\
Example: whale-host grade --task math --answer 'So \\boxed{0.5}' --reference '\\frac{1}{2}'")]
pub(crate) struct Grade {
    /// math or searchqa, a folder with `task.toml`, or the name of a task from `data pull`
    #[arg(long)]
    pub(crate) task: String,

    /// What the harness answered
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) answer: String,

    /// What is right; several are alternatives
    #[arg(long, required = true, allow_hyphen_values = true)]
    pub(crate) reference: Vec<String>,

    /// Compare as strings, as the published verifier for mathematics does
    #[arg(long)]
    pub(crate) strict: bool,

    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Evaluate a harness on a task: mean@k with an interval
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whale-host eval my-harness.wasm --task math --split search --k 4 --limit 64
  whale-host eval my-harness/ --task my-task/ --split test --k 8 --out results.jsonl

Started again after a kill, it runs only what is missing. Opening the split `test` is recorded in \
the task's folder.")]
pub(crate) struct Eval {
    /// A module, or a harness's folder, which is built first
    pub(crate) harness: PathBuf,

    #[command(flatten)]
    pub(crate) local: LocalArgs,

    #[command(flatten)]
    pub(crate) how: EvaluationArgs,

    /// Where to write the results, one JSON object a line; the summary goes beside them [default: in
    /// the cache, by what is evaluated]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Write the record of each episode into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) traces: Option<PathBuf>,
}

/// Compare two harnesses, or two adapters, on the same items and seeds
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whale-host compare a.wasm b.wasm --task math --split search --k 4
  whale-host compare a.wasm --adapter-b run/adapter --task math --split search --k 4")]
pub(crate) struct Compare {
    /// The first: a module, or a harness's folder
    pub(crate) a: PathBuf,

    /// The second [default: the first, with another adapter]
    pub(crate) b: Option<PathBuf>,

    /// The first's adapter
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter_a: Option<PathBuf>,

    /// The second's adapter
    #[arg(long, value_name = "DIR")]
    pub(crate) adapter_b: Option<PathBuf>,

    /// Where local models compute: cpu, cuda:N or metal [default: cpu]
    #[arg(long)]
    pub(crate) device: Option<String>,

    /// Widen local models' weights to 32 bits: as a trainer computes, slower and larger
    #[arg(long)]
    pub(crate) f32: bool,

    #[command(flatten)]
    pub(crate) how: EvaluationArgs,
}

/// What is evaluated and how.
#[derive(Debug, Args)]
pub(crate) struct EvaluationArgs {
    /// A folder with `task.toml`, or the name of a task from `data pull`
    #[arg(long)]
    pub(crate) task: String,

    /// weights, search, confirm or test
    #[arg(long, default_value = "search")]
    pub(crate) split: String,

    /// Rollouts of each item
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) k: u32,

    /// local:NAME-OR-FILE, openai:URL#NAME, or scripted:FILE
    #[arg(long, default_value = "local:smollm2-135m")]
    pub(crate) model: String,

    /// Episodes at once
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) jobs: u32,

    /// Fixes everything that is random
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// Only so many items, drawn by their names; or set a limit of the episodes, such as wall=20s
    #[arg(long = "limit", value_name = "ITEMS|NAME=VALUE")]
    pub(crate) limit: Vec<String>,

    /// A model that decides where the task's grader asks for a judge
    #[arg(long, value_name = "MODEL")]
    pub(crate) judge: Option<String>,

    /// What the judge is asked, with {question}, {references} and {answer}
    #[arg(long, value_name = "FILE", requires = "judge")]
    pub(crate) judge_prompt: Option<PathBuf>,

    /// Offer no code executor
    #[arg(long)]
    pub(crate) no_code: bool,

    /// Dollars for a million tokens read and written, to show what it costs
    #[arg(long, value_name = "IN,OUT", value_parser = price)]
    pub(crate) price: Option<(f64, f64)>,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn price(text: &str) -> Result<(f64, f64), String> {
    let wrong = || format!("`{text}` is not two prices such as 0.5,1.5");
    let (read, written) = text.split_once(',').ok_or_else(wrong)?;
    let price = |text: &str| {
        let price: f64 = text.trim().parse().map_err(|_| wrong())?;
        (price.is_finite() && price >= 0.0)
            .then_some(price)
            .ok_or_else(wrong)
    };
    Ok((price(read)?, price(written)?))
}
