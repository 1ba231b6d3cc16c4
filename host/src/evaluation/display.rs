//! How far an evaluation is: a bar in a terminal, plain lines elsewhere.

use std::{
    collections::HashMap,
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use whale_optimizer::evaluate::{CONFIDENCE, Entry, Progress};
use whale_tasks::statistics::{Scores, mean_at_k};

use super::cost;
use crate::printer;

/// How often a bar is told, and how often a plain line is written.
const OFTEN: Duration = Duration::from_millis(200);
const SELDOM: Duration = Duration::from_secs(15);

pub(super) struct Display {
    bar: Option<ProgressBar>,
    quiet: bool,
    told: Instant,
    items: HashMap<String, Scores>,
    read: u64,
    written: u64,
    price: Option<(f64, f64)>,
}

impl Display {
    pub(super) fn new(
        before: &[Entry],
        all: usize,
        price: Option<(f64, f64)>,
        quiet: bool,
    ) -> Self {
        let bar = (std::io::stderr().is_terminal() && !quiet).then(|| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(all as u64).with_style(style)
        });
        let mut display = Self {
            bar,
            quiet,
            told: Instant::now(),
            items: HashMap::new(),
            read: 0,
            written: 0,
            price,
        };
        for entry in before {
            display.add(entry);
        }
        if !before.is_empty() && !quiet {
            printer::error(&format!(
                "{} of {all} episodes were done before",
                before.len()
            ));
        }
        display
    }

    fn add(&mut self, entry: &Entry) {
        let used = |name: &str| entry.used.get(name).copied().unwrap_or_default();
        self.read += used("prompt-tokens");
        self.written += used("completion-tokens");
        if entry.is_scored() {
            let scores = self
                .items
                .entry(entry.item.clone())
                .or_insert_with(|| Scores {
                    cluster: entry.cluster.clone(),
                    rollouts: Vec::new(),
                });
            scores.rollouts.push(entry.score());
        }
    }

    pub(super) fn tell(&mut self, progress: &Progress, entry: &Entry) {
        self.add(entry);
        if self.quiet {
            return;
        }
        let wait = if self.bar.is_some() { OFTEN } else { SELDOM };
        if self.told.elapsed() < wait && progress.done < progress.all {
            return;
        }
        self.told = Instant::now();
        let scores: Vec<Scores> = self.items.values().cloned().collect();
        let mean = mean_at_k(&scores, CONFIDENCE).map_or_else(String::new, |found| {
            format!(
                "mean {:.3} [{:.3}, {:.3}]",
                found.mean, found.interval.low, found.interval.high
            )
        });
        let mut message = format!("{mean}  {} tokens", self.read + self.written);
        if let Some(cost) = cost(self.price, self.read, self.written) {
            message.push_str(&format!("  {cost}"));
        }
        let fresh = (progress.done - progress.before) as f64;
        let rate = fresh / progress.begun.elapsed().as_secs_f64().max(1e-9);
        let left = (progress.all - progress.done) as f64 / rate.max(1e-9);
        let message = format!("{rate:.1}/s  {message}  {left:.0} s left");
        if let Some(bar) = &self.bar {
            bar.set_position(progress.done as u64);
            bar.set_message(message);
        } else if progress.done < progress.all {
            printer::error(&format!("{}/{}  {message}", progress.done, progress.all));
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
