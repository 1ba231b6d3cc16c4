//! What a store knows of its episode: its line to the host, its bounds, its clock, its output.

use std::sync::Arc;

use tokio::sync::mpsc;
use wasmtime::{ResourceLimiter, StoreContextMut};

use super::super::{
    frames::Outbox,
    protocol::{FromWorker, HostCall, HostReply, Start, WorkerUse},
};
use crate::{LimitHit, Limits, random::Random};

/// Fuel for a host call, whatever it carries, and for each byte that it carries.
const CALL_FUEL: u64 = 10_000;
const BYTE_FUEL: u64 = 1;

/// Nanoseconds between two looks at the clock.
const TICK: u64 = 1_000;
/// Where the clock starts: a day in 2025, and the episode's own second after it.
const EPOCH: u64 = 1_750_000_000;

pub(crate) struct EpisodeState {
    episode: u64,
    outbox: Arc<Outbox>,
    replies: mpsc::UnboundedReceiver<HostReply>,
    limits: Limits,
    memory: u64,
    tables: u64,
    pub(super) random: Random,
    clock: u64,
    output: [Vec<u8>; 2],
    pub(super) used: WorkerUse,
    /// The limit that ended the episode, if one did.
    pub(super) hit: Option<LimitHit>,
    /// The code that the guest wanted to exit with.
    pub(super) exited: Option<u32>,
}

impl EpisodeState {
    pub(super) fn new(
        start: &Start,
        outbox: Arc<Outbox>,
        replies: mpsc::UnboundedReceiver<HostReply>,
    ) -> Self {
        let seconds = EPOCH + start.seed % 86_400;
        Self {
            episode: start.episode,
            outbox,
            replies,
            limits: start.limits.clone(),
            memory: 0,
            tables: 0,
            random: Random::new(start.seed),
            clock: seconds * 1_000_000_000,
            output: [Vec::new(), Vec::new()],
            used: WorkerUse::default(),
            hit: None,
            exited: None,
        }
    }

    /// Notes the limit that ends the episode; the error only unwinds the guest.
    fn end_with(&mut self, limit: &str) -> wasmtime::Error {
        let hit = self.limits.hit(limit);
        let error = wasmtime::Error::msg(hit.to_string());
        self.hit.get_or_insert(hit);
        error
    }

    /// The time, which goes on by a tick at each look.
    pub(super) fn clock(&mut self) -> u64 {
        self.clock += TICK;
        self.clock
    }

    pub(super) fn write(&mut self, stream: u32, bytes: &[u8]) -> wasmtime::Result<()> {
        self.used.output_writes += 1;
        if self.used.output_writes > self.limits.output_writes {
            return Err(self.end_with("output-writes"));
        }
        let room = self
            .limits
            .output_bytes
            .saturating_sub(self.used.output_bytes);
        let kept = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.output[usize::from(stream == 2)].extend_from_slice(&bytes[..kept]);
        self.used.output_bytes += kept as u64;
        if kept < bytes.len() {
            return Err(self.end_with("output-bytes"));
        }
        Ok(())
    }

    /// What was written to stdout and to stderr.
    pub(super) fn take_output(&mut self) -> (String, String) {
        let [out, err] = std::mem::take(&mut self.output);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (text(out), text(err))
    }
}

/// Asks the host and waits for its reply. Both ways cost fuel by the byte.
pub(super) async fn ask(
    mut store: StoreContextMut<'_, EpisodeState>,
    call: HostCall,
) -> wasmtime::Result<HostReply> {
    let state = store.data();
    let message = FromWorker::Call {
        episode: state.episode,
        call,
    };
    let size = postcard::experimental::serialized_size(&message)? as u64;
    burn(&mut store, CALL_FUEL + size * BYTE_FUEL)?;
    let state = store.data_mut();
    if size > state.limits.call_bytes {
        return Err(state.end_with("call-bytes"));
    }
    state.outbox.send(&message)?;
    drop(message);
    let reply = state.replies.recv().await;
    let reply = reply.ok_or_else(|| wasmtime::Error::msg("the host is gone"))?;
    let size = postcard::experimental::serialized_size(&reply)? as u64;
    burn(&mut store, size * BYTE_FUEL)?;
    Ok(reply)
}

fn burn(store: &mut StoreContextMut<'_, EpisodeState>, fuel: u64) -> wasmtime::Result<()> {
    let left = store.get_fuel()?;
    store.set_fuel(left.saturating_sub(fuel))?;
    if left < fuel {
        return Err(wasmtime::Trap::OutOfFuel.into());
    }
    Ok(())
}

impl ResourceLimiter for EpisodeState {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self
            .memory
            .saturating_add(desired.saturating_sub(current) as u64);
        if total > self.limits.memory {
            return Err(self.end_with("memory"));
        }
        self.memory = total;
        self.used.memory = self.used.memory.max(total);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self
            .tables
            .saturating_add(desired.saturating_sub(current) as u64);
        if total > self.limits.table_elements {
            return Err(self.end_with("table-elements"));
        }
        self.tables = total;
        self.used.table_elements = self.used.table_elements.max(total);
        Ok(true)
    }
}
