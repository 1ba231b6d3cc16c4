//! Measures the engine for `cargo xtask bench lm`: one JSON object on stdout.
//!
//! `measure MODEL THREADS WORK`, where the work is `prompt N REPEATS`, `decode SEQUENCES PROMPT NEW`,
//! `rollouts COUNT HEAD TAIL NEW`, with lengths in tokens, or `ceilings` for what the machine could
//! do at best.

#![allow(clippy::print_stdout, reason = "this is a program for a pipe")]

use std::{
    error::Error,
    path::Path,
    sync::mpsc,
    time::{Duration, Instant},
};

use serde_json::json;
use whale_lm::{
    Compute, Engine, EngineConfig, Event, Generate, Model, Request, Sampling, Ticket, Work, ceiling,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, threads, work, numbers @ ..] = arguments.as_slice() else {
        return Err("usage: measure MODEL THREADS WORK NUMBERS".into());
    };
    let numbers: Vec<usize> = numbers
        .iter()
        .map(|n| n.parse())
        .collect::<Result<_, _>>()?;
    let threads = threads.parse()?;
    if work == "ceilings" {
        let ceilings = json!({
            "products_per_second": ceiling::products_per_second(threads),
            "bytes_per_second": ceiling::bytes_per_second(threads),
        });
        println!("{ceilings}");
        return Ok(());
    }
    let config = EngineConfig {
        threads: Some(threads),
        ..EngineConfig::default()
    };
    let model = Model::load(Path::new(model), &Compute::Kernels)?;
    let found = match (work.as_str(), numbers.as_slice()) {
        ("prompt", [length, repeats]) => {
            let config = EngineConfig {
                share_prefixes: false,
                ..config
            };
            prompt(&Engine::start(model, config)?, *length, *repeats)?
        }
        ("decode", [sequences, prompt, new]) => {
            decode(&Engine::start(model, config)?, *sequences, *prompt, *new)?
        }
        ("rollouts", [count, head, tail, new]) => {
            rollouts(&Engine::start(model, config)?, *count, *head, *tail, *new)?
        }
        _ => return Err(format!("`{work}` with {} numbers is no work", numbers.len()).into()),
    };
    let peak = peak_memory().unwrap_or_default();
    println!(
        "{}",
        json!({ "tokens_per_second": found, "peak_bytes": peak })
    );
    Ok(())
}

/// Tokens that look like text to nobody, but cost the same.
fn tokens(count: usize, seed: usize) -> Vec<u32> {
    (0..count)
        .map(|i| 1000 + u32::try_from((i * 7919 + seed * 104_729) % 40_000).unwrap_or(0))
        .collect()
}

fn request(prompt: Vec<u32>, new: usize, seed: u64) -> Request {
    let generate = Generate {
        max_tokens: new,
        sampling: Sampling::default(),
        ignore_end: true,
        seed,
        ..Generate::default()
    };
    Request {
        prompt,
        work: Work::Generate(generate),
        adapter: None,
    }
}

/// Tokens of a prompt a second, best of some.
fn prompt(engine: &Engine, length: usize, repeats: usize) -> Result<f64, Box<dyn Error>> {
    let mut best = Duration::MAX;
    for repeat in 0..=repeats {
        let request = request(tokens(length, repeat), 1, 0);
        let begin = Instant::now();
        engine.generate(request)?;
        best = best.min(begin.elapsed());
    }
    Ok(length as f64 / best.as_secs_f64())
}

type Started = (Vec<Ticket>, mpsc::Receiver<(Instant, Event)>);

fn start(engine: &Engine, requests: Vec<Request>) -> Result<Started, Box<dyn Error>> {
    let (sender, receiver) = mpsc::channel();
    let mut tickets = Vec::new();
    for request in requests {
        let sender = sender.clone();
        let sink = Box::new(move |event| {
            let _ = sender.send((Instant::now(), event));
        });
        tickets.push(engine.submit(request, sink)?);
    }
    Ok((tickets, receiver))
}

/// Tokens a second from when every sequence has its first.
fn decode(
    engine: &Engine,
    sequences: usize,
    prompt: usize,
    new: usize,
) -> Result<f64, Box<dyn Error>> {
    let requests = (0..sequences).map(|i| request(tokens(prompt, i), new, i as u64));
    let (_tickets, events) = start(engine, requests.collect())?;
    let mut times = Vec::new();
    for (at, event) in events {
        match event {
            Event::Token { .. } => times.push(at),
            Event::Failed(error) => return Err(error.into()),
            Event::Generated(_) | Event::Scored(_) => {}
        }
    }
    // Prompts of the first steps are computed beside decoding, so only whole steps count.
    let whole = sequences * (new * 3 / 4);
    let (from, to) = (times[times.len() - whole], times[times.len() - 1]);
    Ok((whole - 1) as f64 / (to - from).as_secs_f64())
}

/// New tokens a second, end to end, of replies to prompts that share a head.
fn rollouts(
    engine: &Engine,
    count: usize,
    head: usize,
    tail: usize,
    new: usize,
) -> Result<f64, Box<dyn Error>> {
    let prompt = |i: usize| [tokens(head, 0), tokens(tail, i + 1)].concat();
    let requests = (0..count)
        .map(|i| request(prompt(i), new, i as u64))
        .collect();
    let begin = Instant::now();
    let (_tickets, events) = start(engine, requests)?;
    let done = events
        .into_iter()
        .filter(|(_, event)| matches!(event, Event::Generated(_)));
    if done.count() != count {
        return Err("a rollout failed".into());
    }
    Ok((count * new) as f64 / begin.elapsed().as_secs_f64())
}

/// The most memory that this process had, in bytes.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
