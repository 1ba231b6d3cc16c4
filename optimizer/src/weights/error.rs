//! Why a weight phase can't go on.

use thiserror::Error;
use whale_trainer::TrainError;

use super::{Moved, PolicyError, WrongSetting};
use crate::evaluate::EvaluateError;

/// Why a weight phase can't go on. What its last checkpoint holds stays.
#[derive(Debug, Error)]
pub enum WeightsError {
    /// A setting makes no sense.
    #[error(transparent)]
    Setting(#[from] WrongSetting),
    /// An episode can't be run or graded.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// New weights can't be served.
    #[error("the new weights can't be served: {0}")]
    Policy(#[from] PolicyError),
    /// New weights were handed over, and something else is served.
    #[error(
        "the new weights were handed over, but {why} (over {} tokens, the sampler's \
         log-probabilities moved by {:.5}{})",
        moved.tokens, moved.sampler, moved.against()
    )]
    NotServed {
        /// How both moved.
        moved: Moved,
        /// What is wrong.
        why: &'static str,
    },
    /// Too many episodes failed for no fault of the harness.
    #[error(
        "{failed} of a step's {all} episodes failed for no fault of the harness; the last: {last}"
    )]
    Rollouts {
        /// How many.
        failed: usize,
        /// Of how many.
        all: usize,
        /// What the last one said.
        last: String,
    },
    /// Episodes bring no token ids.
    #[error(
        "the model's server does not tell the token ids that it reads and writes, and nothing is \
         tokenised again: training needs a server with `return_token_ids`"
    )]
    NoTokens,
    /// A run's folder belongs to another run.
    #[error("`{path}` belongs to another run: its {what} is {theirs}, here it is {ours}")]
    OtherRun {
        /// The folder.
        path: String,
        /// What differs.
        what: String,
        /// There.
        theirs: String,
        /// Here.
        ours: String,
    },
    /// Of trajectories that were given, none can be learned from.
    #[error(
        "nothing can be learned: of {all} trajectories {accepted} have a reward above `threshold`, \
         and {dropped} calls of those were left out"
    )]
    NothingKept {
        /// How many there are.
        all: usize,
        /// How many have enough reward.
        accepted: usize,
        /// Calls of these that were left out.
        dropped: usize,
    },
    /// Another process trains in the same folder.
    #[error("another process trains in `{path}`")]
    Busy {
        /// The folder.
        path: String,
    },
    /// There are no items to train on.
    #[error("the split `weights` of the task has no items")]
    NoItems,
}
