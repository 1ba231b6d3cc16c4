//! Results as tables.

use std::path::Path;

use whale_optimizer::evaluate::Summary;
use whale_tasks::statistics::{Comparison, Estimate, items_needed};

use crate::printer;

/// A difference is looked for at this level, with this power, when the items that it needs are told.
const LEVEL: f64 = 0.05;
const POWER: f64 = 0.8;

fn row(name: &str, text: impl AsRef<str>) -> Vec<String> {
    vec![name.to_owned(), printer::shown(text.as_ref())]
}

/// What tokens cost, if prices are known.
pub(crate) fn cost(price: Option<(f64, f64)>, read: u64, written: u64) -> Option<String> {
    let (for_read, for_written) = price?;
    let dollars = (read as f64 * for_read + written as f64 * for_written) / 1e6;
    Some(format!("${dollars:.4}"))
}

fn estimate(found: &Estimate) -> String {
    format!(
        "{:.4}  [{:.4}, {:.4}]  standard error {:.4}, {} items in {} clusters",
        found.mean,
        found.interval.low,
        found.interval.high,
        found.standard_error,
        found.items,
        found.clusters
    )
}

fn rates(summary: &Summary) -> String {
    let rates = summary.diagnostics.iter();
    let rates: Vec<String> = rates
        .map(|(name, mean)| format!("{name} {mean:.3}"))
        .collect();
    rates.join(", ")
}

/// The table of an evaluation.
pub(crate) fn summary(summary: &Summary, price: Option<(f64, f64)>, path: &Path) {
    let header = &summary.header;
    let used = |name: &str| summary.used.get(name).copied().unwrap_or_default();
    let mut rows = vec![
        row(
            "task",
            format!(
                "{}, split {}, splits {}",
                header.task,
                header.split,
                &header.splits[..12]
            ),
        ),
        row("harness", &header.harness[..12]),
        row("model", header.model.clone()),
        row(
            &format!("mean@{}", header.k),
            summary
                .mean
                .as_ref()
                .map_or("nothing is scored".to_owned(), estimate),
        ),
    ];
    let outcomes = summary.outcomes.iter();
    let outcomes: Vec<String> = outcomes
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    rows.push(row("episodes", outcomes.join(", ")));
    rows.push(row("diagnostics", rates(summary)));
    let (read, written) = (used("prompt-tokens"), used("completion-tokens"));
    let money = cost(price, read, written).map_or(String::new(), |cost| format!(", {cost}"));
    rows.push(row(
        "used",
        format!(
            "{} model calls, {} tool calls, {read} tokens read, {written} written{money}",
            used("model-calls"),
            used("tool-calls")
        ),
    ));
    let slowest: Vec<String> = summary
        .slowest
        .iter()
        .map(|slow| format!("{} ({:.1} s)", slow.item, slow.took_ms as f64 / 1000.0))
        .collect();
    rows.push(row("slowest", slowest.join(", ")));
    for (item, rollout, why) in &summary.errors {
        rows.push(row("error", format!("{item}, rollout {rollout}: {why}")));
    }
    rows.push(row("results", format!("`{}`", path.display())));
    printer::table(&rows);
    if summary.void {
        printer::error(&format!(
            "{} of {} episodes failed for no fault of the harness: the mean is worth nothing; the same \
             command runs them again",
            summary.failed,
            summary.failed + summary.scored
        ));
    }
}

/// The table of a comparison.
pub(crate) fn comparison(a: &Summary, b: &Summary, found: &Comparison) {
    let mean = |summary: &Summary| {
        summary
            .mean
            .as_ref()
            .map_or("nothing is scored".to_owned(), |found| {
                format!(
                    "{:.4}  [{:.4}, {:.4}]  {}",
                    found.mean,
                    found.interval.low,
                    found.interval.high,
                    rates(summary)
                )
            })
    };
    let name = |summary: &Summary| {
        format!(
            "harness {}, {}",
            &summary.header.harness[..12],
            summary.header.model
        )
    };
    let counts = found.counts;
    let mut rows = vec![
        row(
            "task",
            format!(
                "{}, split {}, {} items in {} clusters × {}",
                a.header.task, a.header.split, found.items, found.clusters, a.header.k
            ),
        ),
        row("a", name(a)),
        row("b", name(b)),
        row("mean of a", mean(a)),
        row("mean of b", mean(b)),
        row(
            "b - a",
            format!(
                "{:+.4}  [{:+.4}, {:+.4}]  standard error {:.4}",
                found.difference, found.interval.low, found.interval.high, found.standard_error
            ),
        ),
        row("p", format!("{:.4}  {}", found.p, found.test)),
        row(
            "items",
            format!(
                "b better {}, a better {}, same {}",
                counts.wins, counts.losses, counts.ties
            ),
        ),
    ];
    let spread = found.standard_error * (found.items as f64).sqrt();
    if found.difference != 0.0 && spread > 0.0 {
        let needed = items_needed(found.difference.abs(), spread, LEVEL, POWER);
        rows.push(row(
            "power",
            format!("a true difference of this size is seen 4 times in 5 with {needed} items"),
        ));
    }
    let verdict = if found.p < LEVEL && found.difference > 0.0 {
        "b is better"
    } else if found.p < LEVEL && found.difference < 0.0 {
        "a is better"
    } else {
        "no difference is shown"
    };
    rows.push(row("verdict", verdict));
    printer::table(&rows);
}
