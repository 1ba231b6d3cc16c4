//! What can go wrong in training.

use thiserror::Error;
use whale_lm::LmError;

/// What can go wrong in training.
#[derive(Debug, Error)]
pub enum TrainError {
    /// A file can't be read or written.
    #[error("`{path}`: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file is not in its format, or is damaged.
    #[error("`{path}`{} {message}", line.map_or_else(|| ":".to_owned(), |line| format!(", line {line}:")))]
    Format {
        /// The file.
        path: String,
        /// The line, in a file of lines.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
    /// Something was made under other conditions than these.
    #[error("`{path}` belongs to something else: its {what} is {theirs}, here it is {ours}")]
    Other {
        /// The file.
        path: String,
        /// What differs.
        what: &'static str,
        /// There.
        theirs: String,
        /// Here.
        ours: String,
    },
    /// A setting is out of its bounds.
    #[error("`{name}` is {value}; it must be {bounds}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        bounds: &'static str,
    },
    /// A sequence can't be learned from.
    #[error("item `{item}`, rollout {rollout}: {why}")]
    Sequence {
        /// The item.
        item: String,
        /// Which of its rollouts.
        rollout: u32,
        /// What is wrong with it.
        why: String,
    },
    /// The loss or a gradient is no number any more.
    #[error("{what} is {value} in optimizer step {step}: a lower `learning-rate` may help")]
    Diverged {
        /// What.
        what: &'static str,
        /// Its value.
        value: f64,
        /// In which step of the optimizer.
        step: u64,
    },
    /// A gradient is zero everywhere.
    #[error("no gradient reaches `{name}`, in optimizer step {step}: it would never be trained")]
    NoGradient {
        /// The variable.
        name: String,
        /// In which step of the optimizer.
        step: u64,
    },
    /// Sampler and trainer disagree on the same tokens.
    #[error(
        "sampler and trainer disagree: their log-probabilities of {tokens} kept tokens differ by \
         {mean:.4} in the mean, more than `parity` allows ({bound})"
    )]
    Parity {
        /// The mean absolute difference.
        mean: f64,
        /// The highest that is allowed.
        bound: f64,
        /// Of how many tokens.
        tokens: usize,
    },
    /// No checkpoint can be used.
    #[error("none of the {count} checkpoints in `{path}` can be used; the newest: {newest}")]
    NoCheckpoint {
        /// The folder.
        path: String,
        /// How many there are.
        count: usize,
        /// What is wrong with the newest.
        newest: String,
    },
    /// The external trainer failed, or what it gave can't be used.
    #[error("the training command {message}")]
    Command {
        /// What happened.
        message: String,
    },
    /// The model failed.
    #[error(transparent)]
    Model(#[from] LmError),
    /// The computation failed.
    #[error("the computation failed: {0}")]
    Compute(#[from] candle_core::Error),
}

impl TrainError {
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |error| Self::Io { path, error }
    }

    #[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
    pub(crate) fn format(path: &std::path::Path, message: impl std::fmt::Display) -> Self {
        Self::Format {
            path: path.display().to_string(),
            line: None,
            message: message.to_string(),
        }
    }
}
