//! Builds, episodes and the code executor.
//!
//! Caveats, before the numbers. Both sides of a row are measured in this run, one after the other,
//! so that a machine that others use at the same time moves both; ratios are worth more than the
//! absolute figures. `python3` is the interpreter itself, never a wrapper around it. The episode rows
//! use the profile in which the tests run, with debug assertions in this project's own code. The
//! cargo build has everything compiled before but the edited crate.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};

use super::table::Row;
use crate::{
    command::{self, say},
    paths, setup,
};

const PRIMES: &str = include_str!("primes.py");
/// Edits that are timed.
const EDITS: usize = 7;
/// Starts of python3, on each of two threads.
const STARTS: usize = 40;
const CALL: &str = "print(sum(range(10)))";

pub(crate) fn rows(python: Option<PathBuf>) -> Result<Vec<Row>> {
    setup::all()?;
    let host = paths::host()?;
    let work = tempfile::tempdir()?;
    let mut rows = builds(&host, work.path())?;

    say("measuring episodes and the code executor");
    let module = work.path().join("h0-math.wasm");
    let h0 = paths::root().join("guest-harnesses/h0-math");
    command::output(
        Command::new(&host)
            .arg("build")
            .arg(h0)
            .arg("-o")
            .arg(&module),
    )?;
    let mut build = command::cargo();
    build
        .current_dir(paths::root())
        .args(["build", "--quiet", "--package", "whale-runtime"]);
    command::run(build.args(["--example", "measure"]))?;
    let python = python.map_or_else(behind_python3, Ok)?;
    let started = start_rate(&python)?;
    let called = median(201, || time(Command::new(&python).args(["-c", CALL])))?;
    let primes = median(5, || time(Command::new(&python).args(["-c", PRIMES])))?;
    let mut measure = Command::new(paths::target()?.join("debug/examples/measure"));
    let report = command::output(measure.arg(&host).arg(paths::cache()?).arg(&module))?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    let figure = |name: &str| {
        report[name]
            .as_f64()
            .with_context(|| format!("no figure `{name}`"))
    };

    let episodes = figure("episodes-per-second")?;
    rows.push(row(
        "episode / python3 start",
        (episodes, started),
        episodes / started,
        150.0,
        "1/s",
        "2 workers, one scripted model call, record as JSON; `python3 -c pass` on 2 threads",
    ));
    let bare = figure("bare-per-second")?;
    rows.push(row(
        "episode / bare wasmtime",
        (episodes, bare),
        episodes / bare,
        0.33,
        "1/s",
        "instantiate and run in one process, 1 or 2 threads: no limits, boundary or record",
    ));
    let waiting = figure("waiting-bytes")? / 1024.0;
    rows.push(row(
        "waiting episode's memory",
        (waiting, 256.0),
        256.0 / waiting,
        1.0,
        "KiB",
        "growth of a worker's proportional share for each of 1,000; theirs is the bound",
    ));
    let call = figure("call-seconds")?;
    rows.push(row(
        "python call",
        (call * 1e3, called * 1e3),
        called / call,
        5.0,
        "ms (median)",
        "print(sum(range(10))) against `python3 -c`",
    ));
    let ours = figure("primes-seconds")?;
    rows.push(row(
        "python primes",
        (ours, primes),
        primes / ours,
        0.25,
        "s (median)",
        "sum of primes below 200,000 by trial division, start included on both sides",
    ));
    Ok(rows)
}

fn row(
    row: &'static str,
    (ours, theirs): (f64, f64),
    ratio: f64,
    goal: f64,
    unit: &'static str,
    note: &str,
) -> Row {
    Row {
        suite: "sandbox",
        row,
        ours,
        theirs,
        ratio,
        goal,
        unit,
        note: note.to_owned(),
    }
}

/// From a one-line edit to a module that has passed the gate, against cargo's release build.
fn builds(host: &Path, work: &Path) -> Result<Vec<Row>> {
    say("measuring builds");
    let root = paths::root();
    let source = work.join("math");
    copy(&root.join("guest-harnesses/math"), &source)?;
    let module = work.join("math.wasm");
    let ours = || {
        let mut build = Command::new(host);
        build.arg("build").arg(&source).arg("-o").arg(&module);
        build
    };
    let manifest = format!(
        "[package]\nname = \"math\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n\
         [lib]\ncrate-type = [\"cdylib\"]\n[dependencies]\nwhale-harness = {{ path = {:?} }}\n",
        root.join("harness-sdk")
    );
    fs::write(source.join("Cargo.toml"), manifest)?;
    fs::copy(root.join("Cargo.lock"), source.join("Cargo.lock"))?;
    let toolchain: serde_json::Value =
        serde_json::from_slice(&fs::read(paths::cache()?.join("toolchain.json"))?)?;
    let theirs = || cargo_build(&toolchain, &source);
    command::run(&mut ours())?;
    command::run(&mut theirs())?;

    let (mut times, mut cargo_times, mut run_times) = (Vec::new(), Vec::new(), Vec::new());
    let script = work.join("script");
    fs::write(&script, "{\"replies\": [\"\\\\boxed{42}\"]}")?;
    for edit in 0..EDITS {
        change(&source, edit)?;
        times.push(time(&mut ours())?);
        let mut run = Command::new(host);
        run.arg("run")
            .arg(&module)
            .args(["--prompt", "x", "--no-code", "--model"]);
        run_times.push(time(run.arg(format!("scripted:{}", script.display())))?);
        cargo_times.push(time(&mut theirs())?);
    }
    let (built, cargo) = (middle(&mut times), middle(&mut cargo_times));
    let first = built + middle(&mut run_times);
    Ok(vec![
        row(
            "edit to wasm / cargo",
            (built, cargo),
            cargo / built,
            2.0,
            "s (median)",
            "maths harness, one line edited: jail, rustc, gate; against `cargo build --release`",
        ),
        row(
            "edit to wasm / 1.2 s",
            (built, 1.2),
            1.2 / built,
            1.0,
            "s (median)",
            "theirs is the bound",
        ),
        row(
            "edit to first answer / 1.2 s",
            (first, 1.2),
            1.2 / first,
            1.0,
            "s (median)",
            "with native code made and one episode run; theirs is the bound",
        ),
    ])
}

/// `cargo build --release` for guests, with the compiler that the set-up found.
fn cargo_build(toolchain: &serde_json::Value, source: &Path) -> Command {
    let text = |name: &str| toolchain[name].as_str().unwrap_or_default().to_owned();
    let mut flags = String::new();
    if let Some(sysroot) = toolchain["sysroot"].as_str() {
        flags.push_str(&format!("--sysroot={sysroot}"));
    }
    for argument in toolchain["link-args"].as_array().into_iter().flatten() {
        flags.push_str(&format!(
            " -Clink-arg={}",
            argument.as_str().unwrap_or_default()
        ));
    }
    let mut cargo = command::cargo();
    cargo
        .current_dir(source)
        .env("RUSTC", text("rustc"))
        .env("CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS", flags.trim())
        .env("CARGO_TARGET_DIR", source.join("target"))
        .args(["build", "--quiet", "--release", "--target", "wasm32-wasip1"]);
    cargo
}

/// Edits one line that matters, in a way in which no run did before, so that no cache has the result.
fn change(source: &Path, edit: usize) -> Result<()> {
    let file = source.join("src/lib.rs");
    let text = fs::read_to_string(&file)?;
    let line = text
        .lines()
        .find(|line| line.starts_with("const REPLY_TOKENS"))
        .context("no line")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let tokens = 1_000 + now.as_millis() % 1_000_000_000 + edit as u128;
    fs::write(
        file,
        text.replace(line, &format!("const REPLY_TOKENS: u32 = {tokens};")),
    )?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The interpreter itself: what is called `python3` may be a script that looks for one.
fn behind_python3() -> Result<PathBuf> {
    let mut find = Command::new("python3");
    find.args(["-c", "import sys; print(sys.executable)"]);
    command::output(&mut find)
        .map(PathBuf::from)
        .context("the rows for Python need `python3`")
}

/// Starts of `python3 -c pass` a second, on two threads.
fn start_rate(python: &Path) -> Result<f64> {
    let start = || -> Result<()> {
        for _ in 0..STARTS {
            time(Command::new(python).args(["-c", "pass"]))?;
        }
        Ok(())
    };
    start()?;
    let begin = Instant::now();
    thread::scope(|scope| {
        let threads = [scope.spawn(start), scope.spawn(start)];
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| anyhow::bail!("a thread panicked"))
        })
    })?;
    Ok(2.0 * STARTS as f64 / begin.elapsed().as_secs_f64())
}

/// The seconds that a command takes.
fn time(command: &mut Command) -> Result<f64> {
    command.stdout(Stdio::null());
    let begin = Instant::now();
    command::run(command)?;
    Ok(begin.elapsed().as_secs_f64())
}

fn median(times: usize, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut values = (0..times).map(|_| measure()).collect::<Result<Vec<_>>>()?;
    Ok(middle(&mut values))
}

fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
