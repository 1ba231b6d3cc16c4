//! Evaluates harnesses and adapters, and compares them.
