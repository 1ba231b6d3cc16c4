//! Jailed worker processes in which episodes run.

mod frames;
mod pool;
pub(crate) mod protocol;
mod worker;

pub(crate) use frames::{FrameReader, encode};
pub use pool::{Config, Harness, Sandbox, SandboxError};
pub(crate) use pool::{Event, Ticket};
pub(crate) use protocol::{Ended, How, Start, ToWorker, WorkerUse};
pub use protocol::{HostCall, HostReply, Task};
pub(crate) use worker::{check_types, worker};
