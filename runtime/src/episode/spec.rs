//! Which episode: the task, and everything that its random choices derive from.

use serde::{Deserialize, Serialize};

use crate::{Digest, Limits, sandbox::Task};

/// What fixes an episode, given a harness and the answers to its calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Spec {
    /// The item's name in its data set; a guest never sees it.
    pub item: String,
    /// Which of the item's rollouts.
    pub rollout: u32,
    /// The seed of the run.
    pub seed: u64,
    /// What there is to do.
    pub prompt: String,
    /// Further texts by name.
    #[serde(default)]
    pub fields: Vec<(String, String)>,
    /// The limits of the episode.
    pub limits: Limits,
}

impl Spec {
    /// The seed of request `index` of model call `number`: of the item, the rollout and the call,
    /// never of the harness, so that two harnesses that behave alike get the same replies.
    #[must_use]
    pub fn call_seed(&self, number: usize, index: usize) -> u64 {
        self.derive("call", &[number as u64, index as u64])
    }

    /// The seed of what the guest itself sees: clock, randomness, ids.
    pub(crate) fn guest_seed(&self) -> u64 {
        self.derive("guest", &[])
    }

    /// The task as the guest sees it; its id only tells episodes apart.
    pub(crate) fn task(&self) -> Task {
        Task {
            id: format!("{:016x}", self.derive("id", &[])),
            prompt: self.prompt.clone(),
            fields: self.fields.clone(),
        }
    }

    fn derive(&self, what: &str, numbers: &[u64]) -> u64 {
        let numbers: Vec<u8> = [self.seed, u64::from(self.rollout)]
            .iter()
            .chain(numbers)
            .flat_map(|number| number.to_le_bytes())
            .collect();
        Digest::of_parts([what.as_bytes(), self.item.as_bytes(), &numbers]).to_u64()
    }
}
