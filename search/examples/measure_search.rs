//! Measures the index for `cargo xtask bench tasks`: one JSON object on stdout.
//!
//! `measure_search PASSAGES QUESTIONS K [ENCODER]`: seconds of the build, milliseconds of each query, and the
//! ids that each found. Questions are lines of JSON with `question`.

#![allow(clippy::print_stdout, reason = "this is a program for a pipe")]

use std::{error::Error, path::Path, time::Instant};

use serde_json::{Value, json};
use whale_search::{Bm25, Index};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [passages, questions, k, encoder @ ..] = arguments.as_slice() else {
        return Err("usage: measure_search PASSAGES QUESTIONS K [ENCODER]".into());
    };
    let encoder = encoder.first().map(Path::new);
    let k = k.parse()?;
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("index");
    let begin = Instant::now();
    Index::build(Path::new(passages), &place, Bm25::default(), encoder)?;
    let build = begin.elapsed().as_secs_f64();
    let index = Index::open(&place)?;
    let questions: Vec<String> = std::fs::read_to_string(questions)?
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line)?;
            Ok(line["question"].as_str().unwrap_or_default().to_owned())
        })
        .collect::<Result<_, serde_json::Error>>()?;
    let mut times = Vec::new();
    let mut found = Vec::new();
    for question in &questions {
        let begin = Instant::now();
        let hits = index.find(question, k)?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        found.push(hits.into_iter().map(|hit| hit.id).collect::<Vec<_>>());
    }
    println!(
        "{}",
        json!({ "build": build, "times": times, "found": found })
    );
    Ok(())
}
