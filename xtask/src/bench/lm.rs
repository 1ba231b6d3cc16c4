//! The engine against llama.cpp.
//!
//! Both have the same file and the same number of threads, and are measured in this run, in turns.
//! docs/benchmarks.md has the caveats.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::table::Row;
use crate::{
    command::{self, say},
    paths, setup,
};

/// Times that each side of a row is measured; the best counts.
const ROUNDS: usize = 3;
const PROMPT: usize = 512;
/// New tokens of a sequence.
const NEW: usize = 64;
/// Rollouts: how many, the tokens that they share, those that they do not.
const ROLLOUTS: usize = 64;
const HEAD: usize = 400;
const TAIL: usize = 20;
/// Products that a prompt's token takes: the weights of SmolLM2-135M's layers. The output layer is
/// computed for the last token alone.
const PRODUCTS: f64 = 106.2e6;
/// Bytes of weights that a decoded token reads: all matrices as the file stores them.
const STORED: f64 = 98e6;
/// llama.cpp's parallel slots; the best setting counts.
const SLOTS: [usize; 3] = [8, 16, 32];

struct Sides {
    ours: PathBuf,
    theirs: PathBuf,
    model: PathBuf,
    threads: String,
}

/// Tokens a second, and the most memory.
#[derive(Clone, Copy)]
struct Found {
    speed: f64,
    peak: f64,
}

pub(crate) fn rows() -> Result<Vec<Row>> {
    setup::all()?;
    let theirs = setup::llama_cpp()?;
    let mut build = command::cargo();
    build
        .current_dir(paths::root())
        .args(["build", "--quiet", "--package", "whale-lm"]);
    command::run(build.args(["--example", "measure_lm"]))?;
    let sides = Sides {
        ours: paths::target()?.join("debug/examples/measure_lm"),
        theirs,
        model: paths::cache()?.join("models/smollm2-135m.gguf"),
        threads: thread::available_parallelism()?.to_string(),
    };
    let mut rows = Vec::new();
    let (length, repeats, new) = (PROMPT.to_string(), ROUNDS.to_string(), NEW.to_string());
    say("measuring a prompt and one sequence");
    let (ours, theirs) = in_turns(
        || sides.ours(&["prompt", &length, &repeats]),
        || sides.bench(&["-p", &length, "-n", "0", "-r", &repeats]),
    )?;
    let prompt = ours.speed;
    rows.push(row(
        "prompt of 512 tokens",
        ours,
        theirs,
        1.6,
        "one prompt, empty cache",
    ));
    let (ours, theirs) = in_turns(
        || sides.ours(&["decode", "1", "64", &new]),
        || sides.bench(&["-p", "0", "-n", &new, "-r", &repeats]),
    )?;
    let one = ours.speed;
    rows.push(row(
        "decode, 1 sequence",
        ours,
        theirs,
        0.9,
        "64 new tokens",
    ));
    for (sequences, name, goal) in [
        ("16", "decode, 16 sequences", 1.1),
        ("32", "decode, 32 sequences", 1.3),
    ] {
        say(&format!("measuring {sequences} sequences"));
        let (ours, theirs) = in_turns(
            || sides.ours(&["decode", sequences, "64", &new]),
            || sides.batched(sequences, &new),
        )?;
        rows.push(row(
            name,
            ours,
            theirs,
            goal,
            "64-token prompts, 64 new tokens each",
        ));
    }
    say("measuring rollouts");
    let counts = [ROLLOUTS, HEAD, TAIL, NEW].map(|n| n.to_string());
    let work: Vec<&str> = std::iter::once("rollouts")
        .chain(counts.iter().map(String::as_str))
        .collect();
    let mut best = None;
    let mut note = String::new();
    for slots in SLOTS {
        for primed in [false, true] {
            let found = sides.server(slots, primed)?;
            if best.is_none_or(|best: Found| found.speed > best.speed) {
                let primed = if primed {
                    ", its head sent once first"
                } else {
                    ""
                };
                note = format!("llama-server's best: {slots} slots{primed}");
                best = Some(found);
            }
        }
    }
    let theirs = best.context("no setting of llama-server was measured")?;
    let mut ours = sides.ours(&work)?;
    for _ in 1..ROUNDS {
        ours = better(ours, sides.ours(&work)?);
    }
    let shared = format!("64 that share 400 tokens, 20 of their own, 64 new; {note}");
    rows.push(row("rollouts, end to end", ours, theirs, 1.5, &shared));
    rows.push(Row {
        suite: "lm",
        row: "rollouts, peak memory",
        ours: ours.peak / 1e6,
        theirs: theirs.peak / 1e6,
        ratio: theirs.peak / ours.peak,
        goal: 0.0,
        unit: "MB",
        note: "no goal; ours keeps keys and values in 32 bits, shared heads once".to_owned(),
    });
    say("measuring what the machine could do at best");
    let (products, bytes) = sides.ceilings()?;
    let ceiling = |row, ours: f64, theirs: f64, unit, note: &str| Row {
        suite: "lm",
        row,
        ours: ours / 1e9,
        theirs: theirs / 1e9,
        ratio: ours / theirs,
        goal: 0.0,
        unit,
        note: note.to_owned(),
    };
    rows.push(ceiling(
        "prompt / matrix peak",
        prompt * PRODUCTS,
        products,
        "Gproducts/s",
        "no goal; 8-bit products of a prompt's matrices; theirs is the machine's, in registers",
    ));
    rows.push(ceiling(
        "decode, 1 / bandwidth",
        one * STORED,
        bytes,
        "GB/s",
        "no goal; weights that a token reads; theirs is the machine's reading 512 MB",
    ));
    Ok(rows)
}

fn row(name: &'static str, ours: Found, theirs: Found, goal: f64, note: &str) -> Row {
    Row {
        suite: "lm",
        row: name,
        ours: ours.speed,
        theirs: theirs.speed,
        ratio: ours.speed / theirs.speed,
        goal,
        unit: "tokens/s",
        note: note.to_owned(),
    }
}

fn better(a: Found, b: Found) -> Found {
    Found {
        speed: a.speed.max(b.speed),
        peak: a.peak.max(b.peak),
    }
}

/// Both sides in turns, so that what else the machine does moves both.
fn in_turns(
    ours: impl Fn() -> Result<Found>,
    theirs: impl Fn() -> Result<Found>,
) -> Result<(Found, Found)> {
    let (mut best_ours, mut best_theirs) = (ours()?, theirs()?);
    for _ in 1..ROUNDS {
        best_ours = better(best_ours, ours()?);
        best_theirs = better(best_theirs, theirs()?);
    }
    Ok((best_ours, best_theirs))
}

impl Sides {
    fn ours(&self, work: &[&str]) -> Result<Found> {
        let mut measure = Command::new(&self.ours);
        measure.arg(&self.model).arg(&self.threads).args(work);
        let found: Value = serde_json::from_str(&command::output(&mut measure)?)?;
        Ok(Found {
            speed: found["tokens_per_second"].as_f64().context("no speed")?,
            peak: found["peak_bytes"].as_f64().context("no memory")?,
        })
    }

    /// 8-bit products and bytes read a second, at best.
    fn ceilings(&self) -> Result<(f64, f64)> {
        let mut measure = Command::new(&self.ours);
        measure.arg(&self.model).args([&self.threads, "ceilings"]);
        let found: Value = serde_json::from_str(&command::output(&mut measure)?)?;
        let number = |name: &str| found[name].as_f64().context("no ceiling");
        Ok((number("products_per_second")?, number("bytes_per_second")?))
    }

    fn bench(&self, work: &[&str]) -> Result<Found> {
        let mut bench = Command::new(self.theirs.join("llama-bench"));
        bench
            .arg("-m")
            .arg(&self.model)
            .args(["-t", &self.threads, "-o", "json"])
            .args(work);
        let found: Value = serde_json::from_str(&command::output(bench.stderr(Stdio::null()))?)?;
        // The best of its repetitions, as for ours.
        let samples = found[0]["samples_ts"].as_array().context("no speed")?;
        let best = samples.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
        Ok(Found {
            speed: best,
            peak: 0.0,
        })
    }

    fn batched(&self, sequences: &str, new: &str) -> Result<Found> {
        let mut bench = Command::new(self.theirs.join("llama-batched-bench"));
        bench
            .arg("-m")
            .arg(&self.model)
            .args(["-t", &self.threads, "-c", "8192"]);
        bench.args([
            "-npp",
            "64",
            "-ntg",
            new,
            "-npl",
            sequences,
            "--output-format",
            "jsonl",
        ]);
        let said = command::output(bench.stderr(Stdio::null()))?;
        let found = said
            .lines()
            .find_map(|line| serde_json::from_str::<Value>(line).ok());
        let speed = found
            .and_then(|found| found["speed_tg"].as_f64())
            .context("no speed")?;
        Ok(Found { speed, peak: 0.0 })
    }

    /// The rollouts through llama.cpp's server.
    fn server(&self, slots: usize, primed: bool) -> Result<Found> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let context = slots * (HEAD + TAIL + NEW + 16);
        let mut server = Command::new(self.theirs.join("llama-server"));
        server
            .arg("-m")
            .arg(&self.model)
            .args(["-t", &self.threads]);
        server.args(["--port", &port.to_string(), "-np", &slots.to_string()]);
        server.args(["-c", &context.to_string(), "-kvu"]);
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let server = Stopped(server);
        let begin = Instant::now();
        while request(port, "GET", "/health", "").is_err() {
            ensure!(
                begin.elapsed() < Duration::from_secs(60),
                "llama-server does not start"
            );
            thread::sleep(Duration::from_millis(50));
        }
        let ask = |prompt: Vec<u32>, new: usize| {
            let body = json!({
                "prompt": prompt, "n_predict": new, "ignore_eos": true, "cache_prompt": true,
            });
            let answer = request(port, "POST", "/completion", &body.to_string())?;
            let answer: Value = serde_json::from_str(&answer)?;
            ensure!(
                answer["tokens_predicted"] == new,
                "llama-server cut a reply short"
            );
            Ok(())
        };
        let begin = Instant::now();
        if primed {
            ask(tokens(HEAD, 0), 1)?;
        }
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            let worker = || -> Result<()> {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= ROLLOUTS {
                        return Ok(());
                    }
                    ask([tokens(HEAD, 0), tokens(TAIL, index + 1)].concat(), NEW)?;
                }
            };
            let workers: Vec<_> = (0..slots).map(|_| scope.spawn(worker)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| match worker.join() {
                    Ok(done) => done,
                    Err(_) => bail!("a client panicked"),
                })
        })?;
        let speed = (ROLLOUTS * NEW) as f64 / begin.elapsed().as_secs_f64();
        Ok(Found {
            speed,
            peak: peak(server.0.id())?,
        })
    }
}

/// A process that ends with this value.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The same tokens as those of `measure_lm`.
fn tokens(count: usize, seed: usize) -> Vec<u32> {
    (0..count)
        .map(|i| 1000 + u32::try_from((i * 7919 + seed * 104_729) % 40_000).unwrap_or(0))
        .collect()
}

/// A request to a server on this machine, and the body of its answer.
fn request(port: u16, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(
        answer.split(' ').nth(1) == Some("200"),
        "`{path}` was answered with an error"
    );
    let (_, body) = answer
        .split_once("\r\n\r\n")
        .context("an answer without a body")?;
    Ok(body.to_owned())
}

/// The most memory that a process had, in bytes.
fn peak(process: u32) -> Result<f64> {
    let path = Path::new("/proc").join(process.to_string()).join("status");
    let status = std::fs::read_to_string(path)?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .context("no peak")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("no peak")?.parse()?;
    Ok(kilobytes * 1024.0)
}
