//! The index of passages against bm25s, the grader, and evaluations with a scripted model.
//!
//! docs/benchmarks.md has the caveats.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::table::Row;
use crate::{
    command::{self, say},
    paths, setup,
};

/// Hits of a query.
const K: usize = 5;
/// Times that each side is measured; the best counts.
const ROUNDS: usize = 3;

/// One side of the index's rows.
#[derive(Clone, Copy)]
struct Side {
    build: f64,
    p50: f64,
    p99: f64,
    recall: f64,
}

pub(crate) fn rows() -> Result<Vec<Row>> {
    setup::all()?;
    let python = setup::bm25s()?;
    let host = paths::host()?;
    let target = paths::target()?.join("debug");
    // The whole workspace, so that its dependencies are built with the same features as in tests.
    let mut build = command::cargo();
    build
        .current_dir(paths::root())
        .args(["build", "--quiet", "--workspace", "--examples"]);
    command::run(&mut build)?;
    let searchqa = task(&host, "searchqa")?;
    say("measuring the index");
    let files = [
        searchqa.join("passages.jsonl"),
        searchqa.join("items.jsonl"),
    ];
    let references = references(&files[1])?;
    let passages = passages(&files[0])?;
    let measure = |mut program: Command| -> Result<Side> {
        program.args(&files).arg(K.to_string());
        let said: Value = serde_json::from_str(&command::output(&mut program)?)?;
        side(&said, &references, &passages)
    };
    let ours = || measure(Command::new(target.join("examples/measure_search")));
    let theirs = || {
        let mut program = Command::new(&python);
        program.arg(paths::root().join("xtask/src/bench/retrieval.py"));
        measure(program)
    };
    let (mut a, mut b) = (ours()?, theirs()?);
    for _ in 1..ROUNDS {
        a = better(a, ours()?);
        b = better(b, theirs()?);
    }
    let about = format!(
        "{} questions over {} passages",
        references.len(),
        passages.len()
    );
    let row = |row, ours: f64, theirs: f64, ratio: f64, goal, unit, note: &str| Row {
        suite: "tasks",
        row,
        ours,
        theirs,
        ratio,
        goal,
        unit,
        note: note.to_owned(),
    };
    let mut rows = vec![
        row(
            "index build",
            a.build,
            b.build,
            b.build / a.build,
            0.0,
            "s",
            "no goal; ours on disk, theirs in memory",
        ),
        row("query, p50", a.p50, b.p50, b.p50 / a.p50, 2.0, "ms", &about),
        row("query, p99", a.p99, b.p99, b.p99 / a.p99, 2.0, "ms", &about),
        row(
            "recall@5",
            a.recall,
            b.recall,
            a.recall / b.recall,
            1.0,
            "",
            "a reference stands in one of the passages",
        ),
    ];
    say("measuring the grader");
    let threads = thread::available_parallelism()?.to_string();
    let mut grading = Command::new(target.join("examples/measure_grading"));
    grading
        .arg(&threads)
        .arg(paths::root().join("tasks/fixtures/math_verdicts.tsv"));
    let said: Value = serde_json::from_str(&command::output(&mut grading)?)?;
    let number = |name: &str| said[name].as_f64().context("no figure");
    let speed = number("verdicts_per_second")?;
    rows.push(row(
        "verdicts, plain numbers",
        speed,
        50_000.0,
        speed / 50_000.0,
        1.0,
        "1/s",
        "all processors; theirs is the bound",
    ));
    let slowest = number("slowest_ms")?;
    rows.push(row(
        "slowest verdict",
        slowest,
        1000.0,
        1000.0 / slowest,
        1.0,
        "ms",
        "of the table and of hostile answers; theirs is the bound",
    ));
    say("measuring an evaluation");
    let speed = episodes(&host)?;
    rows.push(row(
        "episodes, scripted model",
        speed,
        1000.0,
        speed / 1000.0,
        1.0,
        "1/s",
        "graded and written down, start of the program included; theirs is the bound",
    ));
    Ok(rows)
}

fn better(a: Side, b: Side) -> Side {
    Side {
        build: a.build.min(b.build),
        p50: a.p50.min(b.p50),
        p99: a.p99.min(b.p99),
        recall: a.recall,
    }
}

/// The folder of a task, which is made if it is not there.
fn task(host: &Path, name: &str) -> Result<PathBuf> {
    let folder = paths::cache()?.join("tasks").join(name);
    if !folder.exists() {
        command::run(Command::new(host).args(["data", "pull", name]))?;
    }
    Ok(folder)
}

fn objects(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path)?;
    Ok(text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}

fn references(path: &Path) -> Result<Vec<Vec<String>>> {
    let texts = |item: &Value| {
        let answers = item["answers"].as_array().into_iter().flatten();
        answers.filter_map(Value::as_str).map(plain).collect()
    };
    Ok(objects(path)?.iter().map(texts).collect())
}

fn passages(path: &Path) -> Result<std::collections::HashMap<String, String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let passages = objects(path)?;
    let passages = passages.iter();
    Ok(passages
        .map(|p| {
            (
                text(&p["id"]),
                plain(&format!("{} {}", text(&p["title"]), text(&p["text"]))),
            )
        })
        .collect())
}

/// Lower case, words alone.
fn plain(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    format!(" {} ", words.collect::<Vec<_>>().join(" "))
}

fn side(
    said: &Value,
    references: &[Vec<String>],
    passages: &std::collections::HashMap<String, String>,
) -> Result<Side> {
    let times = said["times"].as_array().context("no times")?;
    let mut times: Vec<f64> = times.iter().filter_map(Value::as_f64).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() as f64 * share) as usize).min(times.len() - 1)];
    let found = said["found"].as_array().context("nothing found")?;
    let right = found.iter().zip(references).filter(|(ids, references)| {
        let ids = ids
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        ids.filter_map(|id| passages.get(id)).any(|passage| {
            references
                .iter()
                .any(|reference| passage.contains(reference.as_str()))
        })
    });
    Ok(Side {
        build: said["build"].as_f64().context("no time of the build")?,
        p50: at(0.5),
        p99: at(0.99),
        recall: right.count() as f64 / references.len() as f64,
    })
}

/// Graded episodes a second, from the start of the program to its end.
fn episodes(host: &Path) -> Result<f64> {
    task(host, "arithmetic")?;
    let folder = std::env::temp_dir().join(format!("whale-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (script, module) = (folder.join("script"), folder.join("h0.wasm"));
    fs::write(&script, "{\"replies\": [\"It is \\\\boxed{42}.\"]}\n")?;
    let source = paths::root().join("guest-harnesses/h0-math");
    command::output(
        Command::new(host)
            .arg("build")
            .arg(source)
            .arg("-o")
            .arg(&module),
    )?;
    let mut best = 0.0f64;
    for round in 0..ROUNDS {
        let begin = Instant::now();
        let mut eval = Command::new(host);
        eval.arg("eval")
            .arg(&module)
            .args([
                "--task",
                "arithmetic",
                "--split",
                "weights",
                "--k",
                "4",
                "--json",
                "--jobs",
                "64",
            ])
            .arg("--model")
            .arg(format!("scripted:{}", script.display()))
            .arg("--out")
            .arg(folder.join(format!("{round}.jsonl")));
        let summary: Value = serde_json::from_str(&command::output(&mut eval)?)?;
        let scored = summary["scored"].as_f64().context("no episodes")?;
        best = best.max(scored / begin.elapsed().as_secs_f64());
    }
    fs::remove_dir_all(folder)?;
    Ok(best)
}
