//! Hostile harnesses in Rust, by behaviour.

use super::{Guest, Row};

fn row(
    behaviour: &'static str,
    outcome: &'static str,
    limits: &'static [&'static str],
    within: u64,
) -> Row {
    Row {
        name: behaviour,
        guest: Guest::Rust(behaviour),
        limits,
        outcome,
        within,
    }
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        row(
            "hungry program",
            "answered: Status::Memory",
            &["code-memory=96MiB"],
            4_000,
        ),
        row(
            "loud program",
            "answered: Status::Output",
            &["code-output=100"],
            4_000,
        ),
        Row {
            name: "model calls by tokens read",
            ..row(
                "model calls",
                "gave up: the limit `prompt-tokens`",
                &["prompt-tokens=5"],
                5_000,
            )
        },
        Row {
            name: "model calls by tokens written",
            ..row(
                "model calls",
                "gave up: the limit `completion-tokens`",
                &["completion-tokens=5"],
                5_000,
            )
        },
        row(
            "long program",
            "gave up: the limit `code-source`",
            &[],
            5_000,
        ),
        row("loop", "limit fuel", &[], 5_000),
        Row {
            name: "loop against the clock",
            ..row("loop", "limit wall", &["fuel=5000G", "wall=500ms"], 4_000)
        },
        row("nested loops", "limit fuel", &[], 5_000),
        row("recursion", "limit stack", &[], 5_000),
        row(
            "recursion with frames",
            "trapped: memory access out of bounds",
            &[],
            5_000,
        ),
        row("memory in small steps", "limit memory", &[], 5_000),
        row("memory at once", "limit memory", &[], 5_000),
        row("bulk memory", "limit fuel", &["fuel=2G"], 5_000),
        row("regular expression", "limit fuel", &[], 5_000),
        row("panic", "trapped: it panicked", &[], 2_000),
        row("abort", "trapped: it panicked", &[], 2_000),
        row("exit", "trapped: it exited with code 0", &[], 2_000),
        row("panic and go on", "trapped: it panicked", &[], 2_000),
        row(
            "model calls",
            "gave up: the limit `model-calls` of 128",
            &[],
            5_000,
        ),
        row("host calls", "limit fuel", &["total-bytes=1GiB"], 8_000),
        Row {
            name: "host calls by bytes",
            ..row(
                "host calls",
                "gave up: the limit `total-bytes`",
                &["total-bytes=64KiB"],
                5_000,
            )
        },
        row("batch", "limit call-bytes", &[], 5_000),
        Row {
            name: "batch by number",
            ..row(
                "batch",
                "gave up: the limit `batch` of 64",
                &["call-bytes=64MiB"],
                5_000,
            )
        },
        row("long request", "limit call-bytes", &[], 5_000),
        row("long answer", "limit answer-bytes", &[], 5_000),
        row("answer just too long", "limit answer-bytes", &[], 2_000),
        row("long complaint", "limit answer-bytes", &[], 5_000),
        row("output", "limit output-bytes", &[], 5_000),
        row("empty writes", "limit output-writes", &[], 5_000),
        row("notes", "gave up: the limit `note-lines`", &[], 5_000),
        row("long notes", "gave up: the limit `note-bytes`", &[], 5_000),
        row(
            "nested json",
            "gave up: the limit `json-depth` of 64",
            &[],
            2_000,
        ),
        row(
            "programs",
            "gave up: the limit `tool-calls` of 64",
            &[],
            10_000,
        ),
        row("files", "answered: 0 files", &[], 2_000),
        row("write a file", "answered: kept out", &[], 2_000),
        row("list a folder", "answered: kept out", &[], 2_000),
        row(
            "environment",
            "answered: 0 variables, 0 arguments",
            &[],
            2_000,
        ),
        row("socket", "answered: kept out", &[], 2_000),
        row("thread", "answered: kept out", &[], 2_000),
        row("sleep", "trapped: it panicked", &[], 2_000),
        row("clock and randomness", "answered: ", &[], 2_000),
        row(
            "not a number",
            "gave up: the host refused the request: `temperature`",
            &[],
            2_000,
        ),
        row(
            "empty chat",
            "gave up: the host refused the request: a chat needs",
            &[],
            2_000,
        ),
        row("not utf-8", "trapped: invalid utf-8", &[], 2_000),
        row("act", "gave up: the host does not offer this", &[], 2_000),
        row(
            "path as an id",
            "gave up: the host does not offer this",
            &[],
            2_000,
        ),
        row(
            "many hits",
            "gave up: the host does not offer this",
            &[],
            2_000,
        ),
        row(
            "another language",
            "gave up: the host does not offer this: the code executor",
            &[],
            2_000,
        ),
        row("sleeping program", "answered: woke", &[], 2_000),
        row("endless program", "answered: Status::Timeout", &[], 4_000),
        row("forged score", "answered: {\"outcome\"", &[], 2_000),
        row("control sequences", "answered: \u{1b}[2J", &[], 2_000),
        row("budget", "answered: 128", &[], 2_000),
    ]
}
