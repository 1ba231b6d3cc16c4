//! `train` and `export`, with a tiny random model that learns to say one word rather than others.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{self, transcript, whale, write};

/// A model whose words are about equally likely.
pub(crate) fn tiny_model() -> PathBuf {
    support::root().join("lm/fixtures/qwen3")
}

const TASK: &str = r#"
name = "words"
domain = "math"
items = ["items.jsonl"]
[grader]
kind = "math"
[splits]
search = 2
confirm = 2
test = 20
"#;

/// The harness asks for one of three words, so that a random model is right at times.
pub(crate) const HARNESS: &str = r#"use whale_harness::prelude::*;
harness!(run);
fn run(task: &Task) -> Result<Answer> {
    let words = ["2", "3", "4"].map(str::to_owned).to_vec();
    let reply = Chat::raw(&*task.prompt).constraint(Constraint::Choices(words)).complete()?;
    Ok(Answer::new(reply.text))
}
"#;
const ABOUT: &str = "name = \"words\"\ndomain = \"math\"\ncontract = \"0.1\"\ndescription = \"one of three words\"\n";

/// Eight steps of five items.
const RUN: &str = r#"
task = "task"
harness = "words.wasm"
model = "local:MODEL"
seed = 5

[phase]
epochs = 1.0

[rollouts]
prompts = 5
samples = 4
jobs = 4
f32 = true

[train]
rank = 4
alpha = 8.0
learning-rate = 2e-2
schedule = "cosine"
warm-up = 2
minibatch = 8
parity = 1e-3
"#;

pub(crate) struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let bench = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let items: String = (0..64)
            .map(|i| format!("{{\"question\": \"word {i}:\", \"answer\": \"4\"}}\n"))
            .collect();
        let files = [
            ("task/task.toml", TASK),
            ("task/items.jsonl", &items),
            ("words/harness.toml", ABOUT),
            ("words/src/lib.rs", HARNESS),
        ];
        write(bench.path(), &files);
        bench.run_file("whale.toml", |text| text);
        let built = whale(bench.path(), &["build", "words", "-o", "words.wasm"]);
        done(built);
        bench
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Settings with some changed.
    pub(crate) fn run_file(&self, name: &str, change: impl Fn(String) -> String) {
        let text = RUN.replace("MODEL", tiny_model().to_str().unwrap());
        fs::write(self.path().join(name), change(text)).unwrap();
    }

    pub(crate) fn train(&self, arguments: &[&str]) -> Command {
        let mut command = whale(self.path(), &["train"]);
        command.args(arguments);
        command
    }

    /// The adapter that a run has learned.
    pub(crate) fn learned(&self, run: &str) -> Vec<u8> {
        fs::read(
            self.path()
                .join(run)
                .join("learned/adapter_model.safetensors"),
        )
        .unwrap()
    }

    pub(crate) fn rows(&self, run: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path().join(run).join("metrics.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[track_caller]
pub(crate) fn done(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", transcript(&output));
    output
}

#[track_caller]
fn refused(mut command: Command, code: i32, expected: &str) {
    let output = command.output().unwrap();
    let said = transcript(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_phase_learns_and_what_it_learned_can_be_taken_out() {
    let bench = Bench::new();
    done(bench.train(&["whale.toml"]));
    let rows = bench.rows("run");
    assert_eq!(rows.len(), 8);
    let reward = |row: &Value| row["reward"].as_f64().unwrap();
    let (first, last) = (reward(&rows[0]), reward(&rows[7]));
    assert!(last > first + 0.3, "{first} {last}");
    for row in &rows {
        assert_eq!(row["failed"], 0);
        near(row);
    }
    // TensorBoard itself reads the events.
    let python = support::cache().join("tensorboard-2.21.0/bin/python");
    let mut reading = Command::new(python);
    reading.arg(support::root().join("tests/all/training_events.py"));
    reading.arg(bench.path().join("run/tensorboard")).arg("8");
    done(reading);

    // The adapter, in an evaluation of items that were never seen.
    let eval = |arguments: &[&str]| -> f64 {
        let model = format!("local:{}", tiny_model().display());
        let mut command = whale(bench.path(), &["eval", "words.wasm", "--task", "task"]);
        command.args(["--split", "test", "--k", "8", "--model", &model, "--json"]);
        let output = done_with(command, arguments);
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        summary["mean"]["mean"].as_f64().unwrap()
    };
    let base = eval(&["--out", "base.jsonl"]);
    done(whale(bench.path(), &["export", "run", "--adapter", "mine"]));
    let learned = eval(&["--adapter", "mine", "--out", "adapter.jsonl"]);
    assert!(learned > base + 0.3, "{base} {learned}");

    // A model of its own says the same.
    let merged = done(whale(bench.path(), &["export", "run", "--merged", "model"]));
    let said = String::from_utf8_lossy(&merged.stdout).into_owned();
    let most = said
        .trim()
        .rsplit(' ')
        .next()
        .unwrap()
        .parse::<f64>()
        .unwrap();
    assert!(most < 1e-4, "{said}");
    let mut command = whale(bench.path(), &["eval", "words.wasm", "--task", "task"]);
    command.args([
        "--split",
        "test",
        "--k",
        "8",
        "--model",
        "local:model",
        "--json",
    ]);
    let output = done_with(command, &["--out", "merged.jsonl"]);
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let same = summary["mean"]["mean"].as_f64().unwrap();
    assert!((same - learned).abs() < 0.1, "{learned} {same}");

    // The sequences, with labels on what the model sampled alone.
    done(whale(
        bench.path(),
        &["export", "run", "--dataset", "kept.jsonl"],
    ));
    let text = fs::read_to_string(bench.path().join("kept.jsonl")).unwrap();
    let kept: i64 = rows
        .iter()
        .map(|row| row["kept"]["kept"].as_i64().unwrap())
        .sum();
    assert_eq!(text.lines().count() as i64, kept);
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let (tokens, labels) = (
            row["input_ids"].as_array().unwrap(),
            row["labels"].as_array().unwrap(),
        );
        assert_eq!(tokens.len(), labels.len());
        let learned = labels.iter().filter(|label| **label != -100).count();
        assert!(learned > 0 && learned < tokens.len());
        assert!(
            labels
                .iter()
                .zip(tokens)
                .all(|(label, token)| label == token || *label == -100)
        );
        assert_eq!(row["log_probabilities"].as_array().unwrap().len(), learned);
    }
}

/// Sampler and trainer say the same of what was kept, and moved by the same.
#[track_caller]
pub(crate) fn near(row: &Value) {
    if row["update"]["steps"] == 0 {
        return;
    }
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{row}"));
    assert!(number(&row["update"]["parity"]["mean"]) < 1e-4, "{row}");
    let slope = number(&row["moved"]["trainer"]["slope"]);
    assert!((slope - 1.0).abs() < 1e-2, "{row}");
}

#[track_caller]
pub(crate) fn done_with(mut command: Command, arguments: &[&str]) -> Output {
    command.args(arguments);
    done(command)
}

#[test]
fn a_killed_phase_comes_to_the_same_bits() {
    let bench = Bench::new();
    done(bench.train(&["whale.toml", "--out", "whole"]));
    let checkpoints = bench.path().join("killed/checkpoints");
    let rolled = |step: u64| {
        let file = bench
            .path()
            .join(format!("killed/rollouts/{step:06}.jsonl"));
        fs::read_to_string(file).map_or(0, |text| text.lines().count())
    };
    // In the middle of rollouts, and right after a checkpoint.
    let moments: [&dyn Fn() -> bool; 3] = [
        &|| rolled(2) > 4,
        &|| checkpoints.join("000004").exists(),
        &|| rolled(7) > 9,
    ];
    for moment in moments {
        let mut running = bench
            .train(&["whale.toml", "--out", "killed"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !moment() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        running.kill().unwrap();
        running.wait().unwrap();
    }
    // As if the last process had ended in the middle of a line.
    let file = bench.path().join("killed/rollouts/000008.jsonl");
    let mut text = fs::read_to_string(&file).unwrap_or_default();
    text.push_str("{\"item\": \"it");
    fs::write(&file, text).unwrap();
    let ended = done(bench.train(&["whale.toml", "--out", "killed", "--resume"]));
    assert!(
        transcript(&ended).contains("goes on after step"),
        "{}",
        transcript(&ended)
    );
    assert_eq!(bench.learned("whole"), bench.learned("killed"));
    let timeless = |run: &str| -> Vec<Value> {
        let mut rows = bench.rows(run);
        for row in &mut rows {
            row["seconds"] = Value::Null;
            row["update"]["seconds"] = Value::Null;
        }
        rows
    };
    let (whole, killed) = (timeless("whole"), timeless("killed"));
    assert_eq!(whole.len(), killed.len());
    for (whole, killed) in whole.iter().zip(&killed) {
        for (name, value) in whole.as_object().unwrap() {
            assert_eq!(*value, killed[name], "step {}: {name}", whole["step"]);
        }
    }

    // Once more, and nothing runs, whatever is set of what changes no result.
    bench.run_file("whale.toml", |text| text.replace("jobs = 4", "jobs = 3"));
    let again = done(bench.train(&["whale.toml", "--out", "killed"]));
    assert!(transcript(&again).contains("all epochs are over"));
    assert_eq!(bench.rows("killed").len(), 8);

    // A damaged checkpoint is named, and the one before leads to the same.
    let newest = bench
        .path()
        .join("killed/checkpoints/000008/optimizer.safetensors");
    let bytes = fs::read(&newest).unwrap();
    fs::write(&newest, &bytes[..bytes.len() / 2]).unwrap();
    let ended = done(bench.train(&["whale.toml", "--out", "killed"]));
    let said = transcript(&ended);
    assert!(
        said.contains("the checkpoint `000008` is damaged"),
        "{said}"
    );
    assert!(
        said.contains("`optimizer.safetensors` is not what was written"),
        "{said}"
    );
    assert!(said.contains("goes on after step 7"), "{said}");
    assert_eq!(bench.learned("whole"), bench.learned("killed"));

    // The same once more, with rollouts that were made under other weights.
    fs::write(&newest, &bytes[..bytes.len() / 2]).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let other = text.replace(header["adapter"].as_str().unwrap(), "another");
    fs::write(&file, other).unwrap();
    let ended = done(bench.train(&["whale.toml", "--out", "killed"]));
    assert!(
        transcript(&ended).contains("are put aside"),
        "{}",
        transcript(&ended)
    );
    assert!(file.with_extension("old").exists());
    assert_eq!(bench.learned("whole"), bench.learned("killed"));
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let bench = Bench::new();
    let check = |change: &dyn Fn(String) -> String, expected: &str| {
        bench.run_file("wrong.toml", change);
        refused(bench.train(&["wrong.toml", "--out", "wrong"]), 2, expected);
    };
    check(
        &|text| text + "learning_rate = 1\n",
        "unknown field `learning_rate`",
    );
    check(
        &|text| text.replace("2e-2", "-1.0"),
        "`learning-rate` is -1",
    );
    check(
        &|text| text.replace("epochs = 1.0", "epochs = 0.0"),
        "`phase.epochs` is 0",
    );
    check(
        &|text| text.replace("rank = 4", "rank = 4\ntargets = [\"no_proj\"]"),
        "no matrix is named `no_proj`",
    );
    check(
        &|text| text.replace("local:", "openai:http://127.0.0.1:9/v1#"),
        "`hand-over` is missing",
    );
    check(
        &|text| text.replace("words.wasm", "no.wasm"),
        "no.wasm` can't be read",
    );
    refused(bench.train(&["no.toml"]), 2, "`no.toml` can't be read");
    refused(
        bench.train(&["whale.toml", "--resume", "--out", "nothing"]),
        2,
        "there is no run in `nothing`",
    );
    refused(
        whale(bench.path(), &["export", "nothing", "--adapter", "x"]),
        2,
        "nothing/whale.toml",
    );

    // A run goes on under the settings that it was begun with, and no others.
    bench.run_file("short.toml", |text| {
        text.replace("epochs = 1.0", "epochs = 0.1")
    });
    done(bench.train(&["short.toml"]));
    bench.run_file("other.toml", |text| {
        text.replace("epochs = 1.0", "epochs = 0.1")
            .replace("2e-2", "1e-2")
    });
    refused(
        bench.train(&["other.toml"]),
        2,
        "belongs to another run: its `train.learning-rate` is 0.02, here it is 0.01",
    );
    let harness = HARNESS.replace("\"3\"", "\"5\"");
    write(bench.path(), &[("words/src/lib.rs", &harness)]);
    done(whale(bench.path(), &["build", "words", "-o", "words.wasm"]));
    refused(bench.train(&["short.toml"]), 2, "its `identity.harness` is");
}

#[test]
fn nothing_kept_costs_what_it_cost_and_changes_nothing() {
    let bench = Bench::new();
    let items = fs::read_to_string(bench.path().join("task/items.jsonl")).unwrap();
    write(
        bench.path(),
        &[("task/items.jsonl", &items.replace("\"4\"", "\"9\""))],
    );
    bench.run_file("short.toml", |text| {
        text.replace("epochs = 1.0", "epochs = 0.2")
    });
    let ended = done(bench.train(&["short.toml"]));
    assert!(
        transcript(&ended).contains("nothing was learned"),
        "{}",
        transcript(&ended)
    );
    let rows = bench.rows("run");
    assert_eq!(rows.len(), 2);
    assert!(
        rows.iter()
            .all(|row| row["update"]["steps"] == 0 && row["kept"]["rollouts"].as_u64() > Some(0))
    );
    assert!(!bench.path().join("run/learned").exists());
}

#[test]
fn trajectories_are_learned_from_without_rollouts() {
    let bench = Bench::new();
    bench.run_file("short.toml", |text| {
        text.replace("epochs = 1.0", "epochs = 0.25")
    });
    done(bench.train(&["short.toml", "--out", "short"]));
    bench.run_file("offline.toml", |text| {
        text.replace("epochs = 1.0", "epochs = 6.0")
            .replace("1e-3", "10.0")
    });
    let from = ["short/rollouts/000001.jsonl", "short/rollouts/000002.jsonl"];
    done(bench.train(&[
        "offline.toml",
        "--out",
        "offline",
        "--from",
        from[0],
        from[1],
    ]));
    let rows = bench.rows("offline");
    assert_eq!(rows.len(), 6);
    let loss = |row: &Value| row["update"]["loss"].as_f64().unwrap();
    assert!(loss(&rows[5]) < 0.7 * loss(&rows[0]), "{rows:?}");
    assert!(
        bench
            .path()
            .join("offline/learned/adapter_config.json")
            .exists()
    );
    // Of another tokenizer, they are not learned from.
    let file = bench.path().join(from[0]);
    let text = fs::read_to_string(&file).unwrap();
    let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let other = text.replace(header["tokenizer"].as_str().unwrap(), "another");
    fs::write(&file, other).unwrap();
    refused(
        bench.train(&["offline.toml", "--out", "other", "--from", from[0]]),
        2,
        "its tokenizer is another",
    );
}

#[test]
fn all_weights_can_be_trained_and_are_handed_over() {
    let bench = Bench::new();
    bench.run_file("full.toml", |text| {
        text.replace("[train]", "[train]\nmethod = \"full\"")
            .replace("2e-2", "2e-3")
            .replace("epochs = 1.0", "epochs = 0.5")
    });
    done(bench.train(&["full.toml"]));
    let rows = bench.rows("run");
    rows.iter().for_each(near);
    let described = done(whale(bench.path(), &["model", "info", "run/learned"]));
    assert!(
        transcript(&described).contains("qwen3"),
        "{}",
        transcript(&described)
    );
    refused(
        whale(bench.path(), &["export", "run", "--adapter", "x"]),
        2,
        "there is no adapter",
    );
    done(whale(bench.path(), &["export", "run", "--merged", "model"]));
    assert_eq!(
        fs::read(bench.path().join("model/model.safetensors")).unwrap(),
        fs::read(bench.path().join("run/learned/model.safetensors")).unwrap()
    );
}
