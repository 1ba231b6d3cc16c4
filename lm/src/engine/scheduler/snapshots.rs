//! Recurrent states that are kept for sequences to come.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
};

use crate::{blocks::Memory, engine::pages::Key};

/// States of recurrent layers that are kept for others, beside those of running sequences.
pub(super) const SNAPSHOTS: usize = 32;

/// Recurrent states that can be taken up again.
#[derive(Default)]
pub(super) struct Snapshots {
    pub(super) slots: HashMap<Key, usize>,
    /// The oldest first.
    order: VecDeque<Key>,
    free: Vec<usize>,
}

impl Snapshots {
    /// With room in these slots of the memory.
    pub(super) fn new(slots: Range<usize>) -> Self {
        Self {
            free: slots.collect(),
            ..Self::default()
        }
    }

    /// Keeps a copy of a slot's state; the oldest copy goes when there is no room.
    pub(super) fn keep(&mut self, key: Key, slot: usize, memory: &mut Memory) {
        if self.slots.contains_key(&key) {
            return;
        }
        let place = self.free.pop().or_else(|| {
            let oldest = self.order.pop_front()?;
            self.slots.remove(&oldest)
        });
        if let Some(place) = place {
            memory.copy_state(slot, place);
            self.slots.insert(key, place);
            self.order.push_back(key);
        }
    }
}
