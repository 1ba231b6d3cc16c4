//! Bare wasmtime: the same component, instantiated and run in one process, with nothing around it:
//! no limits, no process boundary, no record, and a model that is a constant.

use std::{thread, time::Instant};

use wasmtime::{
    Config, Engine, Store,
    component::{Component, Linker},
};
use whale_runtime::{
    contract::{Completion, FinishReason, HostError, Request, SandboxedPre, Task, Usage, VERSION},
    gate,
};

const RUNS: usize = 4_000;

pub(crate) struct Bare {
    pre: SandboxedPre<()>,
}

impl Bare {
    pub(crate) fn new(wasm: &[u8]) -> Self {
        let engine = Engine::new(&Config::new()).expect("an engine");
        let component = gate::componentise(wasm).expect("a harness");
        let component = Component::new(&engine, component).expect("it compiles");
        let mut linker = Linker::<()>::new(&engine);
        linker
            .define_unknown_imports_as_traps(&component)
            .expect("imports");
        linker.allow_shadowing(true);
        let mut model = linker
            .instance(&format!("whale:harness/model@{VERSION}"))
            .expect("model");
        model
            .func_wrap("complete", |_, (requests,): (Vec<Request>,)| {
                let replies = requests.iter().map(|_| Ok(reply()));
                Ok((replies.collect::<Vec<Result<Completion, HostError>>>(),))
            })
            .expect("complete");
        let pre = linker.instantiate_pre(&component).expect("it links");
        Self {
            pre: SandboxedPre::new(pre).expect("it has an entry point"),
        }
    }

    /// Instantiations with one run each, a second: on one thread or on two, whichever is more, since
    /// threads of one process wait for each other when they map memory.
    pub(crate) fn rate(&self) -> f64 {
        self.run_on(1, RUNS / 10);
        self.rate_on(1).max(self.rate_on(2))
    }

    fn rate_on(&self, threads: usize) -> f64 {
        let begin = Instant::now();
        self.run_on(threads, RUNS);
        (RUNS * threads) as f64 / begin.elapsed().as_secs_f64()
    }

    /// On threads of their own, since each has a runtime of its own.
    fn run_on(&self, threads: usize, times: usize) {
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(move || self.run(times));
            }
        });
    }

    fn run(&self, times: usize) {
        let task = Task {
            id: "0".to_owned(),
            prompt: "What is 6 times 7?".to_owned(),
            fields: Vec::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            for _ in 0..times {
                let mut store = Store::new(self.pre.engine(), ());
                let harness = self
                    .pre
                    .instantiate_async(&mut store)
                    .await
                    .expect("instance");
                let answer = harness.call_run(&mut store, &task).await.expect("no trap");
                assert_eq!(answer.expect("an answer").text, "42");
            }
        });
    }
}

fn reply() -> Completion {
    Completion {
        text: "The answer is \\boxed{42}.".to_owned(),
        tool_calls: Vec::new(),
        finish_reason: FinishReason::Stop,
        usage: Usage {
            prompt_tokens: 1,
            completion_tokens: 1,
        },
    }
}
