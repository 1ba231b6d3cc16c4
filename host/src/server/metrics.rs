//! Figures for Prometheus.

use std::{
    fmt::Write as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    extract::{Request, State},
    http::header::CONTENT_TYPE,
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::Server;

/// What the server counts beside the engine.
#[derive(Default)]
pub(crate) struct Metrics {
    /// Answers by the hundreds of their status.
    answers: [AtomicU64; 6],
    pub(super) first_token: Histogram,
    pub(super) reply: Histogram,
}

/// The upper bounds of a histogram's buckets, in seconds.
const BUCKETS: [f64; 9] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0];

#[derive(Default)]
pub(super) struct Histogram(Mutex<Counts>);

#[derive(Clone, Copy, Default)]
struct Counts {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    pub(super) fn observe(&self, time: Duration) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = time.as_secs_f64();
        for (bucket, bound) in counts.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= bound);
        }
        counts.count += 1;
        counts.sum += seconds;
    }

    fn write(&self, text: &mut String, name: &str, help: &str) {
        let counts = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        for (bucket, bound) in counts.buckets.iter().zip(BUCKETS) {
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {bucket}");
        }
        let Counts { count, sum, .. } = counts;
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum {sum}\n{name}_count {count}");
    }
}

/// Counts every answer.
pub(super) async fn count(
    State(server): State<Arc<Server>>,
    request: Request,
    next: Next,
) -> Response {
    let begin = Instant::now();
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    let status = response.status();
    if let Some(counter) = server
        .metrics
        .answers
        .get(usize::from(status.as_u16() / 100))
    {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    tracing::debug!(path, status = status.as_u16(), time = ?begin.elapsed(), "answered");
    response
}

/// `/metrics`
pub(super) async fn show(State(server): State<Arc<Server>>) -> impl IntoResponse {
    let stats = server.engine.stats();
    let mut text = String::new();
    let mut row = |name: &str, kind: &str, help: &str, value: u64| {
        let _ = writeln!(
            text,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
        );
    };
    let counters = [
        (
            "whale_steps_total",
            "Batches that were computed.",
            stats.steps,
        ),
        (
            "whale_prompt_tokens_total",
            "Tokens of prompts that were computed.",
            stats.prompt_tokens,
        ),
        (
            "whale_cached_tokens_total",
            "Tokens of prompts that were found computed.",
            stats.cached_tokens,
        ),
        (
            "whale_sampled_tokens_total",
            "Tokens that were sampled.",
            stats.sampled_tokens,
        ),
        (
            "whale_sequences_finished_total",
            "Sequences that were done.",
            stats.finished,
        ),
        (
            "whale_sequences_failed_total",
            "Sequences that failed.",
            stats.failed,
        ),
        (
            "whale_sequences_cancelled_total",
            "Sequences that were cancelled.",
            stats.cancelled,
        ),
        (
            "whale_sequences_put_back_total",
            "Times that a sequence was put back for want of memory.",
            stats.put_back,
        ),
    ];
    for (name, help, value) in counters {
        row(name, "counter", help, value);
    }
    let gauges = [
        (
            "whale_sequences_running",
            "Sequences in the batch.",
            stats.running,
        ),
        (
            "whale_sequences_waiting",
            "Sequences that wait.",
            stats.waiting,
        ),
        (
            "whale_pages_used",
            "Pages of the memory that sequences use.",
            stats.used_pages,
        ),
        ("whale_pages", "Pages of the memory.", stats.pages),
    ];
    for (name, help, value) in gauges {
        row(name, "gauge", help, value as u64);
    }
    let name = "whale_answers_total";
    let _ = writeln!(
        text,
        "# HELP {name} Answers by status.\n# TYPE {name} counter"
    );
    for (hundreds, counter) in server.metrics.answers.iter().enumerate().skip(2) {
        let value = counter.load(Ordering::Relaxed);
        let _ = writeln!(text, "{name}{{status=\"{hundreds}xx\"}} {value}");
    }
    let metrics = &server.metrics;
    let help = "From a request's arrival to its first token.";
    metrics
        .first_token
        .write(&mut text, "whale_first_token_seconds", help);
    metrics.reply.write(
        &mut text,
        "whale_reply_seconds",
        "From a request's arrival to its end.",
    );
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}
