//! Measures steps of training for `cargo xtask bench trainer`: one JSON object on stdout.
//!
//! `measure_training MODEL CONTEXT REPEATS [recompute]` takes LoRA steps on four sequences of 256
//! tokens, of which those behind the first CONTEXT are supervised; `measure_training ceiling THREADS`
//! tells what the machine could do at best.

#![allow(clippy::print_stdout, reason = "this is a program for a pipe")]

use std::{error::Error, path::Path, time::Instant};

use candle_core::Device;
use serde_json::json;
use whale_lm::{Supervised, ceiling};
use whale_trainer::{Recompute, Settings, Trainer, data::Sequence};

const SEQUENCES: usize = 4;
const LENGTH: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, context, repeats, recompute) = match arguments.as_slice() {
        [word, threads] if word == "ceiling" => {
            let most = ceiling::wide_products_per_second(threads.parse()?);
            println!("{}", json!({"products_per_second": most}));
            return Ok(());
        }
        [model, context, repeats] => (model, context, repeats, Recompute::Never),
        [model, context, repeats, _] => (model, context, repeats, Recompute::Always),
        _ => return Err("usage: measure_training MODEL CONTEXT REPEATS [recompute]".into()),
    };
    let settings = Settings {
        recompute,
        ..Settings::default()
    };
    let mut trainer = Trainer::load(Path::new(model), &Device::Cpu, &settings, 0)?;
    let context: usize = context.parse()?;
    let vocabulary = trainer.bounds().vocabulary;
    let sequence = |index: usize| Sequence {
        item: index.to_string(),
        rollout: 0,
        supervised: Supervised {
            tokens: (0..LENGTH)
                .map(|place| ((place * 7919 + index * 31) % vocabulary) as u32)
                .collect(),
            chosen: (context..LENGTH).collect(),
        },
        log_probabilities: Vec::new(),
    };
    let mut fastest = f64::INFINITY;
    // The first step fills memory.
    for number in 0..=repeats.parse::<u64>()? {
        let sequences = (0..SEQUENCES).map(sequence).collect();
        let begun = Instant::now();
        trainer.update(sequences, number, 0.0)?;
        if number > 0 {
            fastest = fastest.min(begun.elapsed().as_secs_f64());
        }
    }
    let found = json!({
        "tokens_per_second": (SEQUENCES * LENGTH) as f64 / fastest,
        "peak_memory": peak_memory().ok_or("no figure of the memory")?,
    });
    println!("{found}");
    Ok(())
}

/// The most memory that this process has had, in bytes.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
