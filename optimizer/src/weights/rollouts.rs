//! Episodes of one step, written down as they end.

use std::collections::HashSet;

use futures::{StreamExt as _, stream};
use whale_runtime::{
    episode::{Outcome, Record},
    sandbox::{HostCall, HostReply},
};
use whale_tasks::task::Item;
use whale_trainer::{ModelCall, Trajectories, Trajectory};

use super::{Policy, WeightsError};
use crate::evaluate::{Entry, Evaluation};

/// How a step's episodes went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rolled {
    /// Episodes that are done.
    pub done: usize,
    /// All episodes of the step.
    pub all: usize,
    /// The sum of their rewards.
    pub reward: f64,
    /// Tokens that the model wrote, in episodes of this process.
    pub written: usize,
}

/// Runs the episodes that the file lacks. Episodes that fail for no fault of the harness are left
/// out; it gives how many.
pub(super) async fn roll(
    evaluation: &Evaluation<'_>,
    policy: &dyn Policy,
    items: &[&Item],
    file: &mut Trajectories,
    mut tell: impl FnMut(&Rolled),
) -> Result<usize, WeightsError> {
    let done: HashSet<(String, u32)> = file
        .all()
        .iter()
        .map(|trajectory| (trajectory.item.clone(), trajectory.rollout))
        .collect();
    let missing: Vec<(&Item, u32)> = items
        .iter()
        .flat_map(|item| (0..evaluation.k).map(move |rollout| (*item, rollout)))
        .filter(|(item, rollout)| !done.contains(&(item.id.clone(), *rollout)))
        .collect();
    let mut rolled = Rolled {
        done: done.len(),
        all: done.len() + missing.len(),
        reward: file.all().iter().map(|trajectory| trajectory.reward).sum(),
        written: 0,
    };
    let mut failed = 0;
    let mut last = String::new();
    let mut episodes = stream::iter(missing)
        .map(|(item, rollout)| evaluation.graded(item, rollout))
        .buffer_unordered(evaluation.jobs.max(1));
    while let Some(ended) = episodes.next().await {
        let (record, entry) = ended?;
        if let Outcome::Infrastructure { message } = &record.outcome {
            failed += 1;
            last.clone_from(message);
            rolled.all -= 1;
            continue;
        }
        let trajectory = trajectory(&record, &entry, policy);
        rolled.done += 1;
        rolled.reward += trajectory.reward;
        rolled.written += trajectory
            .calls
            .iter()
            .map(|call| call.sampled.len())
            .sum::<usize>();
        file.push(trajectory)?;
        tell(&rolled);
    }
    file.sync()?;
    // A step without most of its episodes is none.
    if failed * 2 > failed + rolled.done {
        return Err(WeightsError::Rollouts {
            failed,
            all: failed + rolled.done,
            last,
        });
    }
    Ok(failed)
}

/// What training needs of an episode.
fn trajectory(record: &Record, entry: &Entry, policy: &dyn Policy) -> Trajectory {
    let mut calls = Vec::new();
    for call in &record.calls {
        let (HostCall::Complete(_), HostReply::Complete(replies)) = (&call.call, &call.reply)
        else {
            continue;
        };
        for (reply, tokens) in replies.iter().zip(&call.tokens) {
            let (Ok(completion), Some(tokens)) = (reply, tokens) else {
                continue;
            };
            // Text that was cut at a stop, or parsed for calls of tools, is less than what was
            // sampled, but never other.
            let says_it = completion.tool_calls.is_empty().then(|| {
                let said = policy.decode(&tokens.sampled)?;
                Some(said.starts_with(completion.text.as_str()))
            });
            calls.push(ModelCall {
                prompt: tokens.prompt.clone(),
                sampled: tokens.sampled.clone(),
                log_probabilities: tokens.log_probabilities.clone(),
                counted: (
                    completion.usage.prompt_tokens,
                    completion.usage.completion_tokens,
                ),
                other_text: says_it.flatten() == Some(false),
            });
        }
    }
    Trajectory {
        item: entry.item.clone(),
        rollout: entry.rollout,
        reward: entry.score(),
        calls,
    }
}
