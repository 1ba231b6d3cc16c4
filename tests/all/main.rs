//! End-to-end tests: they drive the program as a user does, or its sandbox as a host does.
//!
//! They need what `cargo xtask setup` makes, and use the cache that it fills.

#![allow(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what is meant"
)]

mod bad_input;
mod build_jail;
mod c_guest;
mod command_line;
mod data;
mod determinism;
mod evaluation;
mod executor;
mod harnesses;
mod hostile;
mod model_pull;
mod no_jail;
mod openai;
mod reference_model;
mod repository;
mod retrieval;
mod server;
mod support;
mod tasks;
mod training;
mod training_with_others;
