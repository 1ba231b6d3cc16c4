//! Runs model-written Python with no Python on the machine: an interpreter that is itself a guest,
//! started once, kept as a snapshot of its memory, and copied for every call.

mod pool;
mod protocol;
mod snapshot;
mod wasi;
mod worker;

pub use pool::{Executor, ExecutorError};
pub(crate) use snapshot::prepare;
pub(crate) use worker::worker;
