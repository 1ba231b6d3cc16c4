//! Rows of a benchmark, and how they are printed.

use serde::Serialize;

/// One comparison. A ratio is better when it is larger.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) suite: &'static str,
    pub(crate) row: &'static str,
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    pub(crate) ratio: f64,
    pub(crate) goal: f64,
    pub(crate) unit: &'static str,
    pub(crate) note: String,
}

#[allow(clippy::print_stdout, reason = "this is a program for a terminal")]
pub(crate) fn print(rows: &[Row]) {
    println!(
        "{:<28} {:>10} {:>10} {:<14} {:>7} {:>6}  note",
        "work", "ours", "theirs", "unit", "ratio", "goal"
    );
    for row in rows {
        println!(
            "{:<28} {:>10} {:>10} {:<14} {:>7.2} {:>6.2}  {}",
            row.row,
            short(row.ours),
            short(row.theirs),
            row.unit,
            row.ratio,
            row.goal,
            row.note
        );
    }
}

/// Three digits or so.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.4}"),
    }
}
