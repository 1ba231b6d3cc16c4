//! Measures the sandbox and the code executor for `cargo xtask bench sandbox`, which puts others'
//! figures of the same run beside them. Prints one JSON object.

mod bare;
mod code;
mod episodes;

use std::path::PathBuf;

use serde_json::json;
use whale_runtime::{compile::Cache, process::Program};

/// What every measurement needs: the helper program and the cache.
pub(crate) struct Place {
    pub(crate) program: Program,
    pub(crate) cache: PathBuf,
}

impl Place {
    pub(crate) fn cache(&self) -> Cache {
        Cache::open(self.cache.join("native")).expect("the cache opens")
    }
}

#[tokio::main(worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the one line is for another program")]
async fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(program), Some(cache), Some(module)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        panic!("measure WHALE-HOST CACHE MODULE");
    };
    let place = Place {
        program: Program::new(program),
        cache,
    };
    let wasm = std::fs::read(module).expect("the module is there");

    let bare = bare::Bare::new(&wasm);
    // In turn, so that a machine whose speed drifts does so for both.
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..5 {
        ours.push(episodes::rate(&place, &wasm).await);
        theirs.push(bare.rate());
    }
    let report = json!({
        "episodes-per-second": median(&mut ours),
        "bare-per-second": median(&mut theirs),
        "waiting-bytes": episodes::waiting_bytes(&place, &wasm).await,
        "call-seconds": code::call_seconds(&place).await,
        "primes-seconds": code::primes_seconds(&place).await,
    });
    println!("{report}");
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
