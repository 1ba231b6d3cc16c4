//! Runs harnesses that nobody trusts.
//!
//! Source becomes wasm in a jail ([`build`]), wasm is checked and compiled in a child process
//! ([`gate`], [`compile`]), and an episode runs in a jailed worker process ([`sandbox`]) that
//! reaches a model, a search index, a code executor or an environment only through the host's
//! [`ports`]. Every episode leaves a record that replays without a model ([`episode`]).
//!
//! The crate never prints, exits, or reads the environment. The processes that it starts are the
//! program in [`process::Program`], called with a role's name: such a program hands its arguments
//! to [`roles::run`] before it does anything else.

pub mod build;
pub mod compile;
pub mod contract;
mod digest;
pub mod episode;
pub mod executor;
mod files;
pub mod gate;
pub mod jail;
pub mod limits;
pub mod ports;
pub mod process;
mod random;
pub mod roles;
pub mod sandbox;

pub use digest::Digest;
pub use limits::{LimitHit, Limits};
