//! Programs in the code executor.

use std::time::{Duration, Instant};

use whale_runtime::{
    compile::Compiler,
    contract::Status,
    executor::Executor,
    ports::{CodeExecutor as _, CodeLimits},
};

use crate::{Place, median};

const LIMITS: CodeLimits = CodeLimits {
    wall: Duration::from_secs(60),
    memory: 512 << 20,
    output: 64 << 10,
    seed: 0,
};

async fn executor(place: &Place) -> Executor {
    let compiler = Compiler::new(place.program.clone(), place.cache(), false);
    let guest = place.cache.join("python-executor.wasm");
    let executor = Executor::prepare(place.program.clone(), &compiler, guest, 1, false);
    executor.await.expect("the executor starts")
}

async fn seconds(executor: &Executor, source: &str, times: usize) -> f64 {
    let mut taken = Vec::with_capacity(times);
    for _ in 0..times {
        let begin = Instant::now();
        let execution = executor
            .execute("python", source, "", LIMITS)
            .await
            .expect("it runs");
        taken.push(begin.elapsed().as_secs_f64());
        assert_eq!(execution.status, Status::Ok, "{}", execution.stderr);
    }
    median(&mut taken)
}

/// The median of a call that does next to nothing.
pub(crate) async fn call_seconds(place: &Place) -> f64 {
    let executor = executor(place).await;
    seconds(&executor, "print(sum(range(10)))", 10).await;
    seconds(&executor, "print(sum(range(10)))", 200).await
}

/// The median of some arithmetic: the program is read from where the benchmark has it.
pub(crate) async fn primes_seconds(place: &Place) -> f64 {
    let executor = executor(place).await;
    seconds(
        &executor,
        include_str!("../../../xtask/src/bench/primes.py"),
        5,
    )
    .await
}
