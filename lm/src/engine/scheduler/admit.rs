//! Which waiting sequences join the batch, with what they find computed.

use std::{collections::VecDeque, sync::atomic::Ordering};

use super::Scheduler;
use crate::{
    engine::{
        Shared,
        pages::Key,
        sequence::{Incoming, Sequence},
    },
    kernels::attention::PAGE,
};

/// Pages that are kept for each running sequence when another joins.
const HEADROOM: usize = 4;

impl Scheduler {
    pub(super) fn take(&mut self, incoming: Incoming) {
        self.waiting
            .push_back(Sequence::new(incoming, self.model.hash()));
    }

    pub(super) fn drop_cancelled(&mut self, shared: &Shared) {
        let mut kept = VecDeque::with_capacity(self.waiting.len());
        for sequence in std::mem::take(&mut self.waiting) {
            if sequence.is_cancelled() {
                self.stats.cancelled += 1;
                if sequence.is_new() {
                    shared.waiting.fetch_sub(1, Ordering::AcqRel);
                }
            } else {
                kept.push_back(sequence);
            }
        }
        self.waiting = kept;
        for sequence in std::mem::take(&mut self.running) {
            if sequence.is_cancelled() {
                self.stats.cancelled += 1;
                self.free(&sequence);
            } else {
                self.running.push(sequence);
            }
        }
    }

    /// Moves waiting sequences into the batch while there is room.
    pub(super) fn admit(&mut self, shared: &Shared) {
        let mut later = VecDeque::new();
        while let Some(mut sequence) = self.waiting.pop_front() {
            if self.share && self.awaits_others(&sequence) {
                later.push_back(sequence);
                continue;
            }
            self.reuse(&mut sequence);
            // Room for all that is known of it, and for all to go on for a while: one that is put
            // back soon has to be computed again.
            let needed = (sequence.tokens.len() + 1).div_ceil(PAGE) - sequence.pages.len();
            let needed = needed + self.running.len() * HEADROOM;
            let full = needed > self.table.available() && !self.running.is_empty();
            let slot = if full { None } else { self.slots.pop() };
            let Some(slot) = slot else {
                self.table.release(sequence.pages.iter().copied());
                sequence.put_back();
                self.waiting.push_front(sequence);
                break;
            };
            sequence.slot = slot;
            if sequence.is_new() {
                shared.waiting.fetch_sub(1, Ordering::AcqRel);
            }
            self.restore(&mut sequence);
            for key in &sequence.keys[sequence.registered..] {
                *self.promised.entry(*key).or_default() += 1;
            }
            self.running.push(sequence);
        }
        while let Some(sequence) = later.pop_back() {
            self.waiting.push_front(sequence);
        }
    }

    /// Another sequence is about to compute what this one would begin with.
    fn awaits_others(&self, sequence: &Sequence) -> bool {
        let reusable = sequence.reusable() / PAGE;
        let missing = sequence.keys[..reusable]
            .iter()
            .find(|key| !self.table.knows(key));
        missing.is_some_and(|key| self.promised.contains_key(key))
    }

    /// Takes up the pages that hold the sequence's head.
    fn reuse(&mut self, sequence: &mut Sequence) {
        let mut pages = 0;
        if self.share {
            let reusable = &sequence.keys[..sequence.reusable() / PAGE];
            pages = reusable
                .iter()
                .take_while(|key| self.table.knows(key))
                .count();
            if self.recurrent {
                let all = pages;
                let kept = |pages: &usize| self.snapshots.slots.contains_key(&reusable[pages - 1]);
                pages = (1..=all).rev().find(kept).unwrap_or(0);
                // Where others go on too, a state is worth keeping.
                let whole = sequence.reusable() / PAGE;
                sequence.marks = [all, whole]
                    .into_iter()
                    .filter(|n| *n > pages)
                    .map(|n| n * PAGE)
                    .collect();
            }
            for key in &sequence.keys[..pages] {
                sequence.pages.extend(self.table.share(key));
            }
        }
        sequence.computed = pages * PAGE;
        sequence.registered = pages;
    }

    /// Takes up the recurrent state at the end of the pages that were found.
    fn restore(&mut self, sequence: &mut Sequence) {
        if self.recurrent {
            let last = sequence.registered.checked_sub(1);
            let kept = last.and_then(|page| self.snapshots.slots.get(&sequence.keys[page]));
            match kept {
                Some(kept) => self.memory.copy_state(*kept, sequence.slot),
                None => self.memory.clear_state(sequence.slot),
            }
        }
        if sequence.cached.is_none() {
            sequence.cached = Some(sequence.computed);
            self.stats.cached_tokens += sequence.computed as u64;
        }
    }

    /// Gives back what a sequence holds.
    pub(super) fn free(&mut self, sequence: &Sequence) {
        self.table.release(sequence.pages.iter().copied());
        self.slots.push(sequence.slot);
        for key in &sequence.keys[sequence.registered..] {
            self.keep_promise(key);
        }
    }

    pub(super) fn keep_promise(&mut self, key: &Key) {
        if let Some(count) = self.promised.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.promised.remove(key);
            }
        }
    }
}
