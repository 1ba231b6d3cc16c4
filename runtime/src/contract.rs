//! The contract between a harness and the host, generated from the WIT files: the same types cross
//! the sandbox's boundary, the pipe between processes, and the record of an episode.

#![allow(missing_docs, reason = "the WIT files document these items")]
#![allow(unreachable_pub, unused_qualifications, reason = "generated code")]
#![allow(
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

wasmtime::component::bindgen!({
    path: ["../harness-sdk/wit", "wit"],
    world: "whale:sandbox/sandboxed",
    imports: { default: async | trappable },
    exports: { default: async },
    additional_derives: [PartialEq, serde::Serialize, serde::Deserialize],
});

pub use whale::harness::code::{Execution, Status};
pub use whale::harness::environment::Turn;
pub use whale::harness::model::{
    Budget, Completion, Constraint, FinishReason, Message, Prompt, Request, Role, Sampling, Tool,
    ToolCall, Usage,
};
pub use whale::harness::search::{Document, Hit};
pub use whale::harness::types::{HostError, LimitHit};

/// The version of the contract that this host speaks.
pub const VERSION: &str = "0.1.0";

/// The interfaces that a harness may import, without their version.
pub const INTERFACES: &[&str] = &[
    "whale:harness/types",
    "whale:harness/model",
    "whale:harness/search",
    "whale:harness/code",
    "whale:harness/environment",
    "whale:harness/log",
];

/// What the adapter in front of a guest's WASI imports uses.
pub const SYSTEM: &str = "whale:sandbox/system";
