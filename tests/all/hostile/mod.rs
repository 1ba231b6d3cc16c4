//! Guests that mean harm: each with the outcome that it must have and the time that it may take.

mod modules;
mod table;

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use whale_runtime::{
    Limits,
    episode::{self, Live, Outcome, Record, Spec},
    executor::Executor,
    ports::{CodeExecutor, Ports, Scripted},
    process::Program,
    sandbox::{Harness, Sandbox},
};

use crate::support::{self, WHALE};

/// Bounds that make the table quick; what a row is about it sets itself.
const LIMITS: &[&str] = &["fuel=200M", "fuel-start=5M", "wall=10s", "code-wall=300ms"];
/// What the host may have grown by in the end, in kilobytes.
const GROWTH: u64 = 48 * 1024;

/// Where a row's guest comes from.
enum Guest {
    /// A behaviour of `guest-harnesses/hostile`.
    Rust(&'static str),
    /// A core module against the contract, as text.
    Core(String),
    /// A module or component as it is, as text.
    Raw(String),
}

struct Row {
    name: &'static str,
    guest: Guest,
    limits: &'static [&'static str],
    /// How the outcome, or the reason to refuse it, must start.
    outcome: &'static str,
    /// In milliseconds.
    within: u64,
}

/// What came of a row, in words.
fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Answered { answer } => format!("answered: {answer}"),
        Outcome::GaveUp { message } => format!("gave up: {message}"),
        Outcome::Limit { hit } => format!("limit {}", hit.limit),
        Outcome::Trapped { trap } => format!("trapped: {trap}"),
        Outcome::KilledWorker { how } => format!("killed its worker: {how}"),
        Outcome::Infrastructure { message } => format!("infrastructure: {message}"),
    }
}

struct Host {
    sandbox: Sandbox,
    ports: Ports,
    hostile: Harness,
}

impl Host {
    async fn start() -> Self {
        let limits = Limits::default();
        let sandbox = support::sandbox(2, &limits);
        let folder = tempfile::tempdir().unwrap();
        let wasm = fs::read(support::build("hostile", folder.path())).unwrap();
        let hostile = sandbox.load(&wasm, &limits).await.unwrap();
        let python = support::cache().join("python-executor.wasm");
        let program = Program::new(WHALE.into());
        let executor = Executor::prepare(program, sandbox.compiler(), python, 2, false);
        let code: Arc<dyn CodeExecutor> = Arc::new(executor.await.unwrap());
        let model = Arc::new(Scripted::always("42"));
        let ports = Ports {
            model,
            search: None,
            code: Some(code),
        };
        Self {
            sandbox,
            ports,
            hostile,
        }
    }

    async fn run(&self, harness: &Harness, prompt: &str, limits: Limits) -> Record {
        let spec = Spec {
            item: prompt.to_owned(),
            rollout: 0,
            seed: 0,
            prompt: prompt.to_owned(),
            fields: Vec::new(),
            limits,
        };
        let mut live = Live::new(&spec, &self.ports);
        let name = "scripted".to_owned();
        episode::run(&self.sandbox, harness, spec.clone(), name, &mut live)
            .await
            .unwrap()
    }

    /// What came of a row, and how long that took.
    async fn try_out(&self, row: &Row) -> (String, Duration) {
        let limits = support::limits(&[LIMITS, row.limits].concat());
        let wasm = match &row.guest {
            Guest::Rust(prompt) => {
                let start = Instant::now();
                let record = self.run(&self.hostile, prompt, limits).await;
                return (words(&record.outcome), start.elapsed());
            }
            Guest::Core(text) => support::core_guest(text),
            Guest::Raw(text) => wat::parse_str(text).unwrap(),
        };
        let start = Instant::now();
        let outcome = match self.sandbox.load(&wasm, &limits).await {
            Ok(harness) => words(&self.run(&harness, "x", limits).await.outcome),
            Err(error) => format!("refused: {error}"),
        };
        (outcome, start.elapsed())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_guest_ends_as_it_must() {
    let host = Host::start().await;
    let before = host.run(&host.hostile, "behave", Limits::default()).await;
    assert_eq!(words(&before.outcome), "answered: done");
    let memory = resident();

    let rows: Vec<Row> = table::rows().into_iter().chain(modules::rows()).collect();
    assert!(rows.len() >= 40, "{} rows", rows.len());
    let failures: Vec<String> = stream::iter(&rows)
        .map(async |row| (row, host.try_out(row).await))
        .buffered(4)
        .filter_map(async |(row, (outcome, took))| {
            let as_it_must = outcome.starts_with(row.outcome);
            let in_time = took <= Duration::from_millis(row.within);
            let brief: String = outcome.chars().take(300).collect();
            (!as_it_must || !in_time).then(|| {
                format!(
                    "{}: wanted `{}`, got `{brief}` in {took:?}",
                    row.name, row.outcome
                )
            })
        })
        .collect()
        .await;
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        rows.len(),
        failures.join("\n")
    );

    // The host serves on as if nothing had been.
    let mut after = host.run(&host.hostile, "behave", Limits::default()).await;
    after.times = before.times.clone();
    assert_eq!(after, before);
    let grown = resident().saturating_sub(memory);
    assert!(grown < GROWTH, "the host has grown by {grown} kB");

    assert!(
        !children().is_empty(),
        "there was nothing that could be left over"
    );
    host.sandbox.close().await;
    drop(host);
    nothing_is_left_over().await;
}

/// This process's resident memory, in kilobytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The processes that this one has started and that are not gone.
fn children() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let children =
        tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("children")).ok());
    let ids = children.collect::<Vec<_>>().join(" ");
    ids.split_whitespace().map(str::to_owned).collect()
}

/// Gives processes that are ending a moment to be gone.
async fn nothing_is_left_over() {
    for _ in 0..50 {
        if children().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("processes are left over: {:?}", children());
}

/// A harness that is killed in the middle takes its worker's other episodes with it; they start
/// again, alone, and end as if nothing had been.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_worker_costs_nobody_else_an_episode() {
    let limits = support::limits(&["wall=20s"]);
    let sandbox = support::sandbox(1, &limits);
    let folder = tempfile::tempdir().unwrap();
    let wasm = fs::read(support::build("hostile", folder.path())).unwrap();
    let harness = sandbox.load(&wasm, &limits).await.unwrap();
    let script = folder.path().join("script");
    fs::write(&script, r#"{"replies": ["late"], "delay": 700}"#).unwrap();
    let model = Arc::new(Scripted::read(&script).unwrap());
    let ports = Ports {
        model,
        search: None,
        code: None,
    };
    let spec = |item: &str| Spec {
        item: item.to_owned(),
        rollout: 0,
        seed: 0,
        prompt: "batch".to_owned(),
        fields: Vec::new(),
        limits: Limits {
            batch: 20_000,
            model_calls: 20_000,
            call_bytes: 64 << 20,
            total_bytes: 1 << 30,
            ..limits.clone()
        },
    };
    let run = async |item: &str| {
        let spec = spec(item);
        let mut live = Live::new(&spec, &ports);
        episode::run(&sandbox, &harness, spec.clone(), "x".to_owned(), &mut live)
            .await
            .unwrap()
    };
    let kill = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let ids = sandbox.worker_ids().await;
        assert_eq!(ids.len(), 1);
        let id = nix::unistd::Pid::from_raw(i32::try_from(ids[0]).unwrap());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL).unwrap();
    };
    let (a, b, ()) = tokio::join!(run("a"), run("b"), kill);
    for record in [a, b] {
        assert_eq!(words(&record.outcome), "answered: 10000");
        assert_eq!(record.times.starts, 2);
    }
    sandbox.close().await;
    nothing_is_left_over().await;
}

/// A harness under which workers die even when they run nothing else is put aside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_harness_that_kills_workers_again_and_again_is_put_aside() {
    let limits = support::limits(&["wall=20s"]);
    let sandbox = support::sandbox(1, &limits);
    let folder = tempfile::tempdir().unwrap();
    let wasm = fs::read(support::build("math", folder.path())).unwrap();
    let harness = sandbox.load(&wasm, &limits).await.unwrap();
    let script = folder.path().join("script");
    fs::write(&script, r#"{"replies": ["late"], "delay": 15000}"#).unwrap();
    let model = Arc::new(Scripted::read(&script).unwrap());
    let ports = Ports {
        model,
        search: None,
        code: None,
    };
    let spec = Spec {
        item: "a".to_owned(),
        rollout: 0,
        seed: 0,
        prompt: "x".to_owned(),
        fields: Vec::new(),
        limits,
    };
    let run = async || {
        let mut live = Live::new(&spec, &ports);
        episode::run(&sandbox, &harness, spec.clone(), "x".to_owned(), &mut live).await
    };
    // Stands in for a guest that has found a hole in the engine.
    let kill = async {
        loop {
            tokio::time::sleep(Duration::from_millis(150)).await;
            for id in children() {
                let words = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
                if words.contains("__role\0worker") {
                    let id = nix::unistd::Pid::from_raw(id.parse().unwrap());
                    let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGKILL);
                }
            }
        }
    };
    let outcomes = async {
        for _ in 0..3 {
            let outcome = words(&run().await.unwrap().outcome);
            assert!(
                outcome.starts_with("killed its worker: signal: 9"),
                "{outcome}"
            );
        }
        run().await.unwrap_err().to_string()
    };
    let last = tokio::select! {
        last = outcomes => last,
        () = kill => unreachable!("it never ends by itself"),
    };
    assert!(
        last.contains("is put aside: it has killed 3 workers"),
        "{last}"
    );
    sandbox.close().await;
    nothing_is_left_over().await;
}
