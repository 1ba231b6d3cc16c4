//! How far a weight phase is: a bar within a step in a terminal, and a line for each step.

use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use whale_optimizer::weights::{Row, Told};

use crate::printer;

/// How often a bar is told.
const OFTEN: Duration = Duration::from_millis(200);

pub(super) struct Display {
    bar: Option<ProgressBar>,
    json: bool,
    told: Instant,
    /// Since when the step runs, and what it had written before.
    begun: Instant,
    /// Seconds of the steps of this process.
    seconds: Vec<f64>,
}

impl Display {
    pub(super) fn new(json: bool) -> Self {
        let bar = (std::io::stderr().is_terminal() && !json).then(|| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(1).with_style(style)
        });
        Self {
            bar,
            json,
            told: Instant::now(),
            begun: Instant::now(),
            seconds: Vec::new(),
        }
    }

    pub(super) fn tell(&mut self, told: &Told<'_>) {
        match told {
            Told::GoesOn(steps, damaged) => {
                for (name, why) in *damaged {
                    printer::error(&format!(
                        "warning: the checkpoint `{name}` is damaged and not used: {why}"
                    ));
                }
                if *steps > 0 {
                    printer::error(&format!("goes on after step {steps}"));
                }
            }
            Told::Episode(step, steps, rolled) => {
                let Some(bar) = &self.bar else { return };
                if self.told.elapsed() < OFTEN {
                    return;
                }
                self.told = Instant::now();
                let rate = rolled.written as f64 / self.begun.elapsed().as_secs_f64();
                bar.set_length(rolled.all as u64);
                bar.set_position(rolled.done as u64);
                bar.set_message(format!(
                    "step {step}/{steps}  reward {:.3}  {rate:.0} tokens/s",
                    rolled.reward / rolled.done.max(1) as f64
                ));
            }
            Told::Step(row, left) => {
                self.begun = Instant::now();
                self.seconds
                    .push(row.seconds.rollouts + row.seconds.update + row.seconds.other);
                let line = self.line(row, *left);
                match &self.bar {
                    Some(bar) => bar.println(line),
                    None if self.json => {
                        printer::line(&serde_json::to_string(row).unwrap_or_default());
                    }
                    None => printer::error(&line),
                }
            }
        }
    }

    fn line(&self, row: &Row, left: u64) -> String {
        let seconds = &row.seconds;
        let kept = &row.kept;
        let mut line = format!(
            "step {}/{}  epoch {:.2}  reward {:.3}  kept {}/{} of {} items",
            row.step,
            row.step + left,
            row.epoch,
            row.reward,
            kept.kept,
            kept.rollouts,
            kept.items_kept,
        );
        if row.update.steps > 0 {
            line.push_str(&format!(
                "  loss {:.3}  gradient {:.3}",
                row.update.loss, row.update.gradient
            ));
        } else {
            line.push_str("  nothing learned");
        }
        if row.dropped.total() > 0 {
            line.push_str(&format!("  {} calls left out", row.dropped.total()));
        }
        let rate = row.written as f64 / seconds.rollouts.max(1e-9);
        line.push_str(&format!(
            "  {rate:.0} tokens/s  {:.0} s + {:.0} s",
            seconds.rollouts,
            seconds.update + seconds.other
        ));
        if left > 0 {
            let each = self.seconds.iter().sum::<f64>() / self.seconds.len() as f64;
            line.push_str(&format!(
                "  {:.0} min left",
                (each * left as f64 / 60.0).ceil()
            ));
        }
        line
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
