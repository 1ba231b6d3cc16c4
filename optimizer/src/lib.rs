//! Evaluates harnesses and adapters on tasks, and compares them.

pub mod evaluate;
