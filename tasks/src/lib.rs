//! Items, splits, graders, environments, statistics: what a score means.
//!
//! - [`task::Task`] is a folder of items with their references, shared out into splits.
//! - [`grade::Grader`] says whether an answer is right; [`chess`] does so for a puzzle's moves.
//! - [`statistics`] says how far a mean, or a difference of two, is to be believed.

pub mod chess;
pub mod data;
pub mod grade;
pub mod statistics;
pub mod task;
