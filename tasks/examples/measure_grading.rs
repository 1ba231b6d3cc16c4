//! Measures the grader for `cargo xtask bench tasks`: one JSON object on stdout.
//!
//! `measure_grading THREADS TABLE`: verdicts a second on plain numbers, on so many threads, and the
//! slowest verdict of a table of hard ones, in milliseconds.

#![allow(clippy::print_stdout, reason = "this is a program for a pipe")]

use std::{error::Error, hint::black_box, thread, time::Instant};

use serde_json::json;
use whale_tasks::grade::MathGrader;

const VERDICTS: usize = 400_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [threads, table] = arguments.as_slice() else {
        return Err("usage: measure_grading THREADS TABLE".into());
    };
    let threads: usize = threads.parse()?;
    let table = std::fs::read_to_string(table)?;
    let grader = MathGrader::default();
    let cases: Vec<(String, String)> = (0..1000)
        .map(|i| match i % 4 {
            0 => (format!("{i}"), format!("{i}")),
            1 => (
                format!("So the answer is \\boxed{{{i}}}."),
                format!("{}", i + 1),
            ),
            2 => (format!("{i}.50"), format!("{i}.5")),
            _ => (format!("\\boxed{{1,{i:03}}}"), format!("1{i:03}")),
        })
        .collect();
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for (answer, reference) in cases.iter().cycle().take(VERDICTS) {
                    black_box(grader.grade(answer, reference));
                }
            });
        }
    });
    let speed = (VERDICTS * threads) as f64 / begin.elapsed().as_secs_f64();
    let mut slowest = 0.0f64;
    let mut hard: Vec<(String, String)> = table
        .lines()
        .filter_map(|line| {
            let mut cells = line.split('\t').skip(1);
            Some((cells.next()?.to_owned(), cells.next()?.to_owned()))
        })
        .collect();
    let sqrt = "\\sqrt{2}".to_owned();
    hard.extend([
        (sqrt.clone(), "1".repeat(1 << 20)),
        (sqrt.clone(), "5000!*".repeat(600) + "1"),
        (sqrt.clone(), "((x+1)^{99999})^{99999}".repeat(100)),
        (sqrt, "9^9^9^9".to_owned()),
    ]);
    for (reference, answer) in &hard {
        let begin = Instant::now();
        black_box(grader.grade(answer, reference));
        slowest = slowest.max(begin.elapsed().as_secs_f64() * 1e3);
    }
    println!(
        "{}",
        json!({ "verdicts_per_second": speed, "slowest_ms": slowest })
    );
    Ok(())
}
