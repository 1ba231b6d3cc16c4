//! Episodes through the whole sandbox: worker processes, limits, recording.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use whale_runtime::{
    Limits,
    episode::{self, Live, Outcome, Spec},
    ports::{ChatModel, ModelReply, ModelRequest, PortError, Ports, Scripted},
    sandbox::{Config, Harness, Sandbox},
};

use crate::Place;

const EPISODES: usize = 8_000;
const AT_ONCE: usize = 128;
const WAITING: usize = 1_000;
const REPLY: &str = "The answer is \\boxed{42}.";

async fn start(place: &Place, wasm: &[u8], workers: usize, at_once: usize) -> (Sandbox, Harness) {
    let limits = Limits::default();
    let sandbox = Sandbox::new(Config {
        program: place.program.clone(),
        cache: place.cache(),
        workers,
        episodes_per_worker: at_once.div_ceil(workers),
        stack: limits.stack,
        unsafe_no_jail: false,
    });
    let harness = sandbox
        .load(wasm, &limits)
        .await
        .expect("the harness loads");
    (sandbox, harness)
}

fn spec(number: usize) -> Spec {
    Spec {
        item: number.to_string(),
        rollout: 0,
        seed: 0,
        prompt: "What is 6 times 7?".to_owned(),
        fields: Vec::new(),
        limits: Limits::default(),
    }
}

/// Episodes a second with one model call each, two workers, the record written out as JSON.
pub(crate) async fn rate(place: &Place, wasm: &[u8]) -> f64 {
    let (sandbox, harness) = start(place, wasm, 2, AT_ONCE).await;
    let ports = Ports {
        model: Arc::new(Scripted::always(REPLY)),
        search: None,
        code: None,
    };
    let run = async |number: usize| {
        let spec = spec(number);
        let mut live = Live::new(&spec, &ports);
        let name = "scripted".to_owned();
        let record = episode::run(&sandbox, &harness, spec.clone(), name, &mut live).await;
        let record = record.expect("the sandbox works");
        assert_eq!(
            record.outcome,
            Outcome::Answered {
                answer: "42".to_owned()
            }
        );
        serde_json::to_vec(&record).expect("a record is JSON").len()
    };
    // Both workers are up and have the harness loaded.
    stream::iter(0..AT_ONCE)
        .map(&run)
        .buffer_unordered(AT_ONCE)
        .count()
        .await;
    let begin = Instant::now();
    stream::iter(0..EPISODES)
        .map(&run)
        .buffer_unordered(AT_ONCE)
        .count()
        .await;
    let rate = EPISODES as f64 / begin.elapsed().as_secs_f64();
    sandbox.close().await;
    rate
}

/// A model that never answers.
struct Silent;

#[async_trait]
impl ChatModel for Silent {
    fn name(&self) -> String {
        "silent".to_owned()
    }

    async fn complete(&self, _: ModelRequest<'_>) -> Result<ModelReply, PortError> {
        std::future::pending().await
    }
}

/// What a worker's memory grows by for each episode that waits for its model.
pub(crate) async fn waiting_bytes(place: &Place, wasm: &[u8]) -> f64 {
    let (sandbox, harness) = start(place, wasm, 1, 2 * WAITING).await;
    let ports = Ports {
        model: Arc::new(Silent),
        search: None,
        code: None,
    };
    let run = async |number: usize| {
        let spec = spec(number);
        let mut live = Live::new(&spec, &ports);
        let _ = episode::run(&sandbox, &harness, spec.clone(), String::new(), &mut live).await;
    };
    let settle = Duration::from_millis(500);
    let few = stream::iter(0..10).map(&run).buffer_unordered(10).count();
    let _ = tokio::time::timeout(settle, few).await;
    let ids = sandbox.worker_ids().await;
    let before = memory(ids[0]);
    let grown = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        memory(ids[0]) - before
    };
    let many = stream::iter(0..WAITING)
        .map(&run)
        .buffer_unordered(WAITING)
        .count();
    let grown = tokio::select! {
        grown = grown => grown,
        _ = many => panic!("a silent model answered"),
    };
    sandbox.close().await;
    grown / WAITING as f64
}

/// A process's own share of memory, in bytes.
fn memory(id: u32) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).expect("it runs");
    let line = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .expect("it has a share");
    let kilobytes: f64 = line
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("it is a number");
    kilobytes * 1024.0
}
