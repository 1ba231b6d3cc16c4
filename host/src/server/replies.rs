//! Replies while they are written.

use std::{sync::Arc, time::Instant};

use tokio::sync::mpsc;
use whale_lm::{Event, Generate, Generated, Request, Ticket, Work};

use super::{Fault, Server};

/// Some replies to one request. Dropping them cancels what is not done.
pub(super) struct Replies {
    server: Arc<Server>,
    events: mpsc::UnboundedReceiver<(usize, Event)>,
    /// Kept for their dropping.
    _tickets: Vec<Ticket>,
    begin: Instant,
    first: bool,
    left: usize,
}

impl Replies {
    /// Starts `count` replies to each prompt; a reply's index counts through all of them.
    pub(super) fn start(
        server: Arc<Server>,
        prompts: &[Vec<u32>],
        count: usize,
        generate: &Generate,
        adapter: Option<&str>,
    ) -> Result<Self, Fault> {
        // A reply has at most as many events as tokens, which the context bounds.
        let (sender, events) = mpsc::unbounded_channel();
        let mut tickets = Vec::with_capacity(prompts.len() * count);
        for (index, prompt) in prompts.iter().enumerate() {
            for reply in 0..count {
                let at = index * count + reply;
                let mut generate = generate.clone();
                generate.seed = generate.seed.wrapping_add(reply as u64);
                let sender = sender.clone();
                let sink = Box::new(move |event: Event| {
                    let _ = sender.send((at, event));
                });
                let request = Request {
                    prompt: prompt.clone(),
                    work: Work::Generate(generate),
                    adapter: adapter.map(str::to_owned),
                };
                tickets.push(server.engine.submit(request, sink)?);
            }
        }
        let left = tickets.len();
        Ok(Self {
            server,
            events,
            _tickets: tickets,
            begin: Instant::now(),
            first: true,
            left,
        })
    }

    /// The next event of any of them; none when all are done.
    pub(super) async fn next(&mut self) -> Option<(usize, Event)> {
        if self.left == 0 {
            return None;
        }
        let (index, event) = self.events.recv().await?;
        let metrics = &self.server.metrics;
        if std::mem::take(&mut self.first) {
            metrics.first_token.observe(self.begin.elapsed());
        }
        if !matches!(event, Event::Token { .. }) {
            self.left -= 1;
            metrics.reply.observe(self.begin.elapsed());
        }
        Some((index, event))
    }

    /// Waits for all of them.
    pub(super) async fn all(mut self) -> Result<Vec<Generated>, Fault> {
        let mut done: Vec<(usize, Generated)> = Vec::with_capacity(self.left);
        let count = self.left;
        while let Some((index, event)) = self.next().await {
            match event {
                Event::Generated(generated) => done.push((index, generated)),
                Event::Failed(error) => return Err(error.into()),
                Event::Token { .. } | Event::Scored(_) => {}
            }
        }
        if done.len() < count {
            return Err(whale_lm::LmError::Stopped.into());
        }
        done.sort_by_key(|(index, _)| *index);
        Ok(done.into_iter().map(|(_, generated)| generated).collect())
    }
}
