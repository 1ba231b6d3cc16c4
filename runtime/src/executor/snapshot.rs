//! Starts the interpreter once and makes native code of it with its memory as it is then.

use wasmtime::{Linker, Store};
use wasmtime_wizer::Wizer;

use super::wasi::{self, Run};
use crate::compile::{Purpose, engine::engine};

/// The native code of a started interpreter, from the interpreter's module.
pub(crate) fn prepare(wasm: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
    let engine = engine(Purpose::Executor, 0)?;
    let mut linker = Linker::new(&engine);
    wasi::define(&mut linker)?;
    let mut store = Store::new(&engine, Run::initialising());
    let mut wizer = Wizer::new();
    wizer.init_func("wizer-initialize");
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let started = runtime.block_on(wizer.run(&mut store, wasm, async |store, module| {
        wasi::define_absent(&mut linker, module)?;
        linker.instantiate_async(store, module).await
    }));
    let snapshot = started.map_err(|error| {
        let said = store.data().stderr_text();
        format!("the interpreter did not start: {error:#}; it said: {said}")
    })?;
    Ok(engine.precompile_module(&snapshot)?)
}
