//! `train` with a server that samples, and with a training command.

use std::{fs, path::PathBuf, process::Command};

use crate::{
    server::Serving,
    support::{self, whale, write},
    training::{Bench, HARNESS, done, done_with, near, tiny_model},
};

#[test]
fn a_server_samples_and_gets_each_adapter() {
    let bench = Bench::new();
    let adapters = bench.path().join("adapters");
    fs::create_dir(&adapters).unwrap();
    let model = tiny_model();
    let arguments = ["--f32", "--adapters", adapters.to_str().unwrap()];
    let server = Serving::start(model.to_str().unwrap(), &arguments, None);
    // Its protocol has no choices, so the harness samples anything.
    let free = HARNESS.replace(".constraint(Constraint::Choices(words))", ".max_tokens(6)");
    let free = free.replace(
        "    let words = [\"2\", \"3\", \"4\"].map(str::to_owned).to_vec();\n",
        "",
    );
    let free = free.replace(
        "Answer::new(reply.text)",
        "Answer::new(if reply.text.contains('e') { \"4\" } else { \"3\" })",
    );
    write(bench.path(), &[("words/src/lib.rs", &free)]);
    done(whale(bench.path(), &["build", "words", "-o", "words.wasm"]));
    bench.run_file("remote.toml", |text| {
        let local = format!("local:{}", model.display());
        let remote = format!("openai:{}/v1#qwen3", server.address);
        text.replace(&local, &remote)
            .replace("epochs = 1.0", "epochs = 0.5")
            + &format!(
                "[hand-over]\nbase = \"{local}\"\nfolder = \"adapters\"\nserver-folder = \"\"\n"
            )
    });
    done(bench.train(&["remote.toml"]));
    let rows = bench.rows("run");
    assert_eq!(rows.len(), 4);
    for row in &rows {
        assert_eq!(row["dropped"]["drifted"], 0, "{row}");
        near(row);
    }
    let updates = rows.iter().filter(|row| row["update"]["steps"] != 0);
    assert!(updates.count() >= 2, "{rows:?}");
    // Old adapters are gone, and the newest is the one that was learned.
    let left: Vec<PathBuf> = fs::read_dir(&adapters)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(
        fs::read(left[0].join("adapter_model.safetensors")).unwrap(),
        bench.learned("run")
    );
}

/// A Python with PyTorch and PEFT: what the benchmark installs, or the user's.
fn pytorch() -> Option<PathBuf> {
    let ours = support::cache().join("pytorch-2.15.0/bin/python");
    [ours, PathBuf::from("python3")].into_iter().find(|python| {
        let mut asks = Command::new(python);
        let output = asks
            .args(["-c", "import peft, torch, transformers"])
            .output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// The example of a training command, where there is a Python for it; and `peft` gives the adapter
/// that we export the logits that we give it.
#[test]
fn pytorch_trains_and_loads_what_is_exported() {
    let bench = Bench::new();
    let Some(python) = pytorch() else {
        eprintln!("NOT CHECKED: there is no Python with torch, transformers and peft");
        return;
    };
    let example = support::root().join("examples/pytorch-trainer/train.py");
    bench.run_file("command.toml", |text| {
        let command =
            format!("[train]\nbackend = \"command\"\ncommand = [{python:?}, {example:?}]");
        text.replace("[train]", &command)
            .replace("epochs = 1.0", "epochs = 0.5")
    });
    done(bench.train(&["command.toml", "--out", "command"]));
    let rows = bench.rows("command");
    assert_eq!(rows.len(), 4);
    assert!(
        rows.iter()
            .all(|row| row["moved"]["sampler"].as_f64() > Some(0.0)),
        "{rows:?}"
    );
    assert!(
        bench
            .path()
            .join("command/learned/adapter_config.json")
            .exists()
    );

    bench.run_file("short.toml", |text| {
        text.replace("epochs = 1.0", "epochs = 0.5")
    });
    done(bench.train(&["short.toml", "--out", "own"]));
    done(whale(bench.path(), &["export", "own", "--adapter", "mine"]));
    done(whale(bench.path(), &["export", "own", "--merged", "model"]));
    let mut checking = Command::new(python);
    checking.arg(support::root().join("tests/all/training_peft.py"));
    done_with(
        checking,
        &[
            tiny_model().to_str().unwrap(),
            bench.path().to_str().unwrap(),
        ],
    );
}
