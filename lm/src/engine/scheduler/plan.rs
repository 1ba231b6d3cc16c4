//! What each running sequence computes in a step, and the pages that it needs for that.

use super::Scheduler;
use crate::{engine::pages::Key, kernels::attention::PAGE};

/// What a sequence computes in a step.
pub(super) struct Plan {
    pub(super) index: usize,
    pub(super) tokens: usize,
}

impl Scheduler {
    /// What each running sequence computes next. Those that sample come first; the rest of the step
    /// goes to prompts. One that finds no page is put back, the latest first.
    pub(super) fn plan(&mut self) -> Vec<Plan> {
        let mut left = self.step_tokens;
        let ids = |long: bool| {
            let like = self
                .running
                .iter()
                .filter(move |s| (s.missing() > 1) == long);
            like.map(|sequence| sequence.id).collect::<Vec<u64>>()
        };
        let order = [ids(false), ids(true)].concat();
        let mut plans: Vec<(u64, usize)> = Vec::new();
        for id in order {
            let Some(sequence) = self.running.iter().find(|sequence| sequence.id == id) else {
                continue;
            };
            let mut tokens = sequence.missing().min(left);
            let next = sequence
                .marks
                .iter()
                .map(|mark| mark.saturating_sub(sequence.computed));
            if let Some(mark) = next.filter(|tokens| *tokens > 0).min() {
                tokens = tokens.min(mark);
            }
            if tokens == 0 {
                continue;
            }
            if self.make_room(id, tokens) {
                left -= tokens;
                plans.push((id, tokens));
            }
        }
        let place = |id: u64| self.running.iter().position(|sequence| sequence.id == id);
        let mut plans: Vec<Plan> = plans
            .into_iter()
            .filter_map(|(id, tokens)| {
                Some(Plan {
                    index: place(id)?,
                    tokens,
                })
            })
            .collect();
        // Rows with the same adapter side by side.
        let adapter = |plan: &Plan| {
            self.running[plan.index]
                .adapter
                .as_ref()
                .map(|a| a.hash().to_owned())
        };
        plans.sort_by_cached_key(|plan| (adapter(plan), plan.index));
        plans
    }

    /// Gets the pages that a sequence needs for its next tokens, if need be by putting later ones
    /// back. False where the sequence itself was put back.
    fn make_room(&mut self, id: u64, tokens: usize) -> bool {
        loop {
            let Some(index) = self.running.iter().position(|sequence| sequence.id == id) else {
                return false;
            };
            let sequence = &mut self.running[index];
            let needed = (sequence.computed + tokens).div_ceil(PAGE);
            while sequence.pages.len() < needed {
                let Some(page) = self.table.take() else { break };
                sequence.pages.push(page);
            }
            if sequence.pages.len() >= needed {
                return true;
            }
            let Some(mut last) = self.running.pop() else {
                return false;
            };
            self.free(&last);
            last.put_back();
            self.stats.put_back += 1;
            self.waiting.push_front(last);
        }
    }

    /// Notes what the memory holds now.
    pub(super) fn advance(&mut self, plans: &[Plan]) {
        for plan in plans {
            let sequence = &mut self.running[plan.index];
            let before = sequence.computed;
            sequence.computed += plan.tokens;
            let of_prompt = sequence.computed.min(sequence.prompt) - before.min(sequence.prompt);
            self.stats.prompt_tokens += of_prompt as u64;
            let full = sequence.computed / PAGE;
            let new: Vec<(u32, Key)> = (sequence.registered..full)
                .map(|page| (sequence.pages[page], sequence.keys[page]))
                .collect();
            sequence.registered = sequence.registered.max(full);
            let state = (self.recurrent && sequence.marks.contains(&sequence.computed))
                .then(|| (sequence.keys[full - 1], sequence.slot));
            for (page, key) in new {
                if self.share {
                    self.table.register(page, key);
                }
                self.keep_promise(&key);
            }
            if let Some((key, slot)) = state {
                self.snapshots.keep(key, slot, &mut self.memory);
            }
        }
    }
}
