//! Sets up what is missing. Everything is made in the cache, named by what it is made from, and is
//! there whole or not at all.

mod bm25s;
mod cuda;
mod environment;
mod llama_cpp;
mod model;
mod openai_client;
mod python;
mod pytorch;
mod sdk;
mod tensorboard;
mod tools;
mod wasm;

use anyhow::Result;

use crate::paths;

pub(crate) use bm25s::install as bm25s;
pub(crate) use cuda::install as cuda;
pub(crate) use llama_cpp::build as llama_cpp;
pub(crate) use pytorch::install as pytorch;
pub(crate) use tools::{clang, deny, nextest};

/// All that a harness needs to be built and run.
pub(crate) fn all() -> Result<()> {
    guests()?;
    model::small(&paths::cache()?)
}

/// What only tests need.
pub(crate) fn for_tests() -> Result<()> {
    clang()?;
    openai_client::install()?;
    tensorboard::install()?;
    model::second(&paths::cache()?)
}

/// The compiler for guests, and the guests that are part of the project.
pub(crate) fn guests() -> Result<()> {
    let cache = paths::cache()?;
    let wasm = wasm::find(&cache)?;
    sdk::build(&cache, &wasm)?;
    python::build(&cache, &wasm)
}
