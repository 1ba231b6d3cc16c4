//! Steps of training against PyTorch with PEFT, and where a weight phase's time goes.
//!
//! docs/benchmarks.md has the caveats.

use std::{fs, path::PathBuf, process::Command, thread};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::table::Row;
use crate::{
    command::{self, say},
    paths, setup,
};

/// Times that each side is started; the best step of all counts.
const ROUNDS: usize = 3;
/// Steps of each start, after one that does not count.
const STEPS: &str = "4";
/// Products of a token in a step without its output layer: the layers' weights, once forward and
/// once backward.
const LAYERS: f64 = 2.0 * 106.2e6;
/// Of a supervised token in the output layer, forward and backward.
const OUTPUT: f64 = 2.0 * 576.0 * 49152.0;

/// Tokens a second, and the most memory in bytes.
#[derive(Clone, Copy)]
struct Found {
    speed: f64,
    peak: f64,
}

struct Sides {
    ours: PathBuf,
    python: PathBuf,
    model: PathBuf,
    threads: String,
}

pub(crate) fn rows() -> Result<Vec<Row>> {
    setup::all()?;
    let python = setup::pytorch()?;
    let host = paths::host()?;
    let mut build = command::cargo();
    build
        .current_dir(paths::root())
        .args(["build", "--quiet", "--workspace", "--examples"]);
    command::run(&mut build)?;
    let sides = Sides {
        ours: paths::target()?.join("debug/examples/measure_training"),
        python,
        model: paths::cache()?.join("models/smollm2-135m.gguf"),
        threads: thread::available_parallelism()?.to_string(),
    };
    let mut rows = Vec::new();
    let names = [
        ("step, half supervised", "half, peak memory", 128),
        ("step, 15/16 supervised", "15/16, peak memory", 16),
    ];
    let mut best = None;
    for (speed, memory, context) in names {
        say(&format!("measuring steps with a context of {context}"));
        let (ours, theirs) = sides.both(context)?;
        rows.push(row(
            speed,
            ours.speed,
            theirs.speed,
            ours.speed / theirs.speed,
            1.0,
            "tokens/s",
            "LoRA of rank 16 on all matrices, 4 sequences of 256 tokens, 32 bits",
        ));
        let mega = |found: Found| found.peak / 1e6;
        rows.push(row(
            memory,
            mega(ours),
            mega(theirs),
            theirs.peak / ours.peak,
            1.25,
            "MB",
            "of the process, model and optimizer included",
        ));
        best.get_or_insert(ours);
    }
    if let Some(plain) = best {
        let again = sides.ours(128, true)?;
        rows.push(row(
            "layers computed again",
            again.speed,
            plain.speed,
            again.speed / plain.speed,
            0.0,
            "tokens/s",
            "no goal; theirs is ours without it",
        ));
        rows.push(row(
            "the same, peak memory",
            again.peak / 1e6,
            plain.peak / 1e6,
            plain.peak / again.peak,
            0.0,
            "MB",
            "no goal; theirs is ours without it",
        ));
        let most = sides.ceiling()?;
        let products = plain.speed * (LAYERS + OUTPUT / 2.0);
        rows.push(row(
            "step / matrix peak",
            products / 1e9,
            most / 1e9,
            products / most,
            0.0,
            "Gproducts/s",
            "no goal; theirs is 32-bit products in registers, on all processors",
        ));
    }
    say("measuring a weight phase");
    let (other, all) = phase(&host)?;
    rows.push(row(
        "neither rollouts nor update",
        100.0 * other / all,
        5.0,
        0.05 * all / other,
        1.0,
        "% of time",
        "three steps of 64 items x 8 on `arithmetic`; theirs is the bound",
    ));
    Ok(rows)
}

fn row(
    row: &'static str,
    ours: f64,
    theirs: f64,
    ratio: f64,
    goal: f64,
    unit: &'static str,
    note: &str,
) -> Row {
    Row {
        suite: "trainer",
        row,
        ours,
        theirs,
        ratio,
        goal,
        unit,
        note: note.to_owned(),
    }
}

impl Sides {
    /// Both in turns, each at its best.
    fn both(&self, context: usize) -> Result<(Found, Found)> {
        let (mut ours, mut theirs) = (self.ours(context, false)?, self.theirs(context)?);
        for _ in 1..ROUNDS {
            ours = better(ours, self.ours(context, false)?);
            theirs = better(theirs, self.theirs(context)?);
        }
        Ok((ours, theirs))
    }

    fn ours(&self, context: usize, recompute: bool) -> Result<Found> {
        let mut program = Command::new(&self.ours);
        program.env("CANDLE_NUM_THREADS", "1");
        program.arg(&self.model).arg(context.to_string()).arg(STEPS);
        found(program.args(recompute.then_some("recompute")))
    }

    fn theirs(&self, context: usize) -> Result<Found> {
        let mut program = Command::new(&self.python);
        program.arg(paths::root().join("xtask/src/bench/training.py"));
        found(
            program
                .arg(context.to_string())
                .args([STEPS, &self.threads]),
        )
    }

    /// Products a second at best.
    fn ceiling(&self) -> Result<f64> {
        let mut program = Command::new(&self.ours);
        let said = command::output(program.args(["ceiling", &self.threads]))?;
        let said: Value = serde_json::from_str(&said)?;
        said["products_per_second"].as_f64().context("no figure")
    }
}

fn better(a: Found, b: Found) -> Found {
    Found {
        speed: a.speed.max(b.speed),
        peak: a.peak.min(b.peak),
    }
}

fn found(program: &mut Command) -> Result<Found> {
    let said: Value = serde_json::from_str(command::output(program)?.trim())?;
    let number = |name: &str| said[name].as_f64().context("no figure");
    Ok(Found {
        speed: number("tokens_per_second")?,
        peak: number("peak_memory")?,
    })
}

/// Seconds of a short weight phase: those that are neither rollouts nor update, and all.
fn phase(host: &PathBuf) -> Result<(f64, f64)> {
    let cache = paths::cache()?;
    if !cache.join("tasks/arithmetic").exists() {
        command::run(Command::new(host).args(["data", "pull", "arithmetic"]))?;
    }
    let folder = cache.join("bench-trainer");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let harness = paths::root().join("guest-harnesses/h0-arithmetic");
    let settings = folder.join("whale.toml");
    fs::write(
        &settings,
        format!(
            "task = \"arithmetic\"\nharness = {:?}\nmodel = \"local:smollm2-135m\"\n\
             [phase]\nepochs = 0.0645\n[rollouts]\nprompts = 64\n\
             limits = {{ reply-tokens = \"64\" }}\n[train]\nlearning-rate = 5e-4\n",
            harness.display().to_string()
        ),
    )?;
    let run = folder.join("run");
    command::run(
        Command::new(host)
            .arg("train")
            .arg(&settings)
            .arg("--out")
            .arg(&run),
    )?;
    let (mut other, mut all) = (0.0, 0.0);
    for line in fs::read_to_string(run.join("metrics.jsonl"))?.lines() {
        let row: Value = serde_json::from_str(line)?;
        let number = |name: &str| row["seconds"][name].as_f64().context("no figure");
        other += number("other")?;
        all += number("rollouts")? + number("update")? + number("other")?;
    }
    fs::remove_dir_all(&folder)?;
    Ok((other, all))
}
