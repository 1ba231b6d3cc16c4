//! How the engine is configured: one configuration a purpose, the same in the process that compiles
//! and in the one that runs.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use wasmtime::{Config, Engine, WasmFeatures};

use super::Purpose;
use crate::{Digest, Limits};

/// A call stack for the interpreter: deep recursion in Python is deep recursion in it.
pub(crate) const EXECUTOR_STACK: usize = 32 * 1024 * 1024;

/// An engine for this purpose; `stack` bounds a harness's call stack, in bytes.
pub(crate) fn engine(purpose: Purpose, stack: u64) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    for feature in [
        WasmFeatures::THREADS,
        WasmFeatures::SHARED_EVERYTHING_THREADS,
        WasmFeatures::MEMORY64,
        WasmFeatures::MULTI_MEMORY,
        WasmFeatures::TAIL_CALL,
        WasmFeatures::RELAXED_SIMD,
        WasmFeatures::FUNCTION_REFERENCES,
        WasmFeatures::GC,
        WasmFeatures::EXCEPTIONS,
        WasmFeatures::WIDE_ARITHMETIC,
        WasmFeatures::CUSTOM_PAGE_SIZES,
        WasmFeatures::STACK_SWITCHING,
        WasmFeatures::CM_ASYNC,
    ] {
        config.wasm_features(feature, false);
    }
    config.cranelift_nan_canonicalization(true);
    match purpose {
        Purpose::Harness | Purpose::CheckOnly => {
            let stack = usize::try_from(stack)
                .unwrap_or(usize::MAX)
                .clamp(64 << 10, 64 << 20);
            config
                .consume_fuel(true)
                .max_wasm_stack(stack)
                .async_stack_size(stack + (256 << 10));
        }
        // Neither fuel nor epochs, which would slow it down: a program that goes on for
        // too long is ended with its process.
        Purpose::Executor => {
            config
                .max_wasm_stack(EXECUTOR_STACK)
                .async_stack_size(EXECUTOR_STACK + (1 << 20));
        }
    }
    Engine::new(&config)
}

/// Names the native code of a module: the module, and all that makes native code differ.
pub(super) fn key(module: &Digest, purpose: Purpose) -> Digest {
    let mut hasher = DefaultHasher::new();
    if let Ok(engine) = engine(purpose, Limits::default().stack) {
        engine.precompile_compatibility_hash().hash(&mut hasher);
    }
    let configuration = hasher.finish().to_le_bytes();
    let kind = format!("{purpose:?} contract {}", crate::contract::VERSION);
    // What the interpreter saw while it was started is part of its snapshot.
    let seen = match purpose {
        Purpose::Executor => include_bytes!("../executor/wasi.rs").as_slice(),
        Purpose::Harness | Purpose::CheckOnly => &[],
    };
    Digest::of_parts([
        module.as_str().as_bytes(),
        &configuration[..],
        kind.as_bytes(),
        seen,
    ])
}
