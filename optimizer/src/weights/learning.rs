//! Who takes the steps: this program's trainer, or a command of the user's.

use std::{
    fs,
    path::{Path, PathBuf},
};

use whale_lm::{Adapter, Supervised, Trainable, merge};
use whale_trainer::{
    Backend, Settings, TrainError, Trainer, Update,
    data::{Bounds, Sequence},
    external,
};

use super::{Served, Subject, Text};

/// The model in training.
pub(super) enum Learning {
    Local {
        trainer: Box<Trainer>,
        base: PathBuf,
    },
    Command {
        settings: Box<Settings>,
        base: PathBuf,
        /// Where its updates lie.
        folder: PathBuf,
        adapter: Option<PathBuf>,
        bounds: Bounds,
        seed: u64,
    },
}

/// What is handed over.
pub(super) enum Ready {
    Adapter(PathBuf, String),
    Weights(PathBuf),
}

impl Ready {
    pub(super) fn served(&self) -> Served<'_> {
        match self {
            Self::Adapter(folder, hash) => Served::Adapter(folder, hash),
            Self::Weights(folder) => Served::Weights(folder),
        }
    }
}

const ADAPTER: &str = "adapter";

impl Learning {
    pub(super) fn begin(subject: &Subject<'_>) -> Result<Self, TrainError> {
        let (settings, seed) = (&subject.settings.train, subject.settings.seed);
        settings.check()?;
        let base = subject.base.to_owned();
        Ok(match settings.backend {
            Backend::Local => {
                let trainer = Trainer::load(&base, &subject.device, settings, seed)?;
                Self::Local {
                    trainer: Box::new(trainer),
                    base,
                }
            }
            Backend::Command => Self::Command {
                settings: Box::new(settings.clone()),
                base,
                folder: subject.folder.updates(),
                adapter: None,
                bounds: Bounds {
                    vocabulary: subject.vocabulary,
                    longest: settings.longest,
                },
                seed,
            },
        })
    }

    pub(super) fn bounds(&self) -> Bounds {
        match self {
            Self::Local { trainer, .. } => trainer.bounds(),
            Self::Command { bounds, .. } => *bounds,
        }
    }

    /// Steps of the optimizer, where this program counts them.
    pub(super) fn steps(&self) -> u64 {
        match self {
            Self::Local { trainer, .. } => trainer.steps(),
            Self::Command { .. } => 0,
        }
    }

    pub(super) fn update(
        &mut self,
        sequences: Vec<Sequence>,
        number: u64,
        progress: f64,
    ) -> Result<Update, TrainError> {
        match self {
            Self::Local { trainer, .. } => trainer.update(sequences, number, progress),
            Self::Command {
                settings,
                base,
                folder,
                adapter,
                seed,
                ..
            } => {
                let begun = std::time::Instant::now();
                if sequences.is_empty() {
                    return Ok(Update::default());
                }
                let place = folder.join(format!("{number:06}"));
                let when = (number, progress, *seed);
                let given = adapter.as_deref();
                let new = external::update(&place, base, given, &sequences, settings, when)?;
                *adapter = Some(new);
                Ok(Update {
                    supervised: sequences.iter().map(Sequence::learned).sum(),
                    tokens: sequences.iter().map(|s| s.supervised.tokens.len()).sum(),
                    sequences: sequences.len(),
                    steps: 1,
                    seconds: begun.elapsed().as_secs_f64(),
                    ..Update::default()
                })
            }
        }
    }

    /// What the trainer says of the texts' tokens; nothing where it is a command.
    pub(super) fn score(&self, texts: &[Text]) -> Result<Vec<f32>, TrainError> {
        match self {
            Self::Local { trainer, .. } => {
                let asked = texts.iter().map(|text| Supervised {
                    tokens: text.tokens.clone(),
                    chosen: text.places.clone(),
                });
                let asked: Vec<Supervised> = asked.collect();
                Ok(trainer.learner().log_probabilities(&asked)?)
            }
            Self::Command { .. } => Ok(Vec::new()),
        }
    }

    /// Writes what is to be served into a folder.
    pub(super) fn ready(&self, folder: &Path) -> Result<Ready, TrainError> {
        match self {
            Self::Local { trainer, base } => match trainer.adapter()? {
                Some(adapter) => {
                    adapter.save(folder, &name(base))?;
                    Ok(Ready::Adapter(folder.to_owned(), adapter.hash().to_owned()))
                }
                None => {
                    merge(base, Trainable::Weights(&trainer.weights()), folder)?;
                    Ok(Ready::Weights(folder.to_owned()))
                }
            },
            Self::Command { adapter, .. } => {
                let adapter = adapter.as_deref().ok_or_else(|| TrainError::Command {
                    message: "has made no adapter yet".to_owned(),
                })?;
                copy(adapter, folder)?;
                let hash = Adapter::load(folder)?.hash().to_owned();
                Ok(Ready::Adapter(folder.to_owned(), hash))
            }
        }
    }

    pub(super) fn save(&self, folder: &Path) -> Result<(), TrainError> {
        match self {
            Self::Local { trainer, .. } => trainer.save(folder),
            Self::Command { adapter, .. } => match adapter {
                Some(adapter) => copy(adapter, &folder.join(ADAPTER)),
                None => Ok(()),
            },
        }
    }

    pub(super) fn restore(&mut self, folder: &Path, steps: u64) -> Result<(), TrainError> {
        match self {
            Self::Local { trainer, .. } => trainer.restore(folder, steps),
            Self::Command { adapter, .. } => {
                let saved = folder.join(ADAPTER);
                *adapter = saved.exists().then_some(saved);
                Ok(())
            }
        }
    }
}

/// What a model's file or folder is called.
fn name(base: &Path) -> String {
    base.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The files of an adapter's folder.
fn copy(from: &Path, to: &Path) -> Result<(), TrainError> {
    let io = |path: &Path| {
        let path = path.display().to_string();
        move |error| TrainError::Io { path, error }
    };
    fs::create_dir_all(to).map_err(io(to))?;
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        let from = from.join(name);
        fs::copy(&from, to.join(name)).map_err(io(&from))?;
    }
    Ok(())
}
