//! The same training on trajectories that are there already.

use std::path::PathBuf;

use whale_trainer::{Header, Trajectories, Trajectory, data::sequences, select::select};

use super::{Ended, Row, Seconds, Subject, Told, WeightsError, mean_reward};

/// Trajectories that belong together.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// Under what the first came about.
    pub header: Header,
    /// All of them; in later files, rollouts of an item have later numbers.
    pub trajectories: Vec<Trajectory>,
}

/// Reads files of trajectories. They must be of one model, tokenizer, harness and task; adapter and
/// seed may differ.
///
/// # Errors
/// When a file can't be read, or does not belong to the others.
pub fn gather(paths: &[PathBuf]) -> Result<Gathered, WeightsError> {
    let mut gathered: Option<Gathered> = None;
    for path in paths {
        let (header, trajectories) = Trajectories::read(path)?;
        match &mut gathered {
            None => {
                gathered = Some(Gathered {
                    header,
                    trajectories,
                });
            }
            Some(gathered) => {
                let like = Header {
                    adapter: header.adapter.clone(),
                    seed: header.seed,
                    ..gathered.header.clone()
                };
                like.check(&header, path)?;
                // Rollouts of one item in several files are several rollouts.
                let next = gathered
                    .trajectories
                    .iter()
                    .map(|one| one.rollout + 1)
                    .max();
                let next = next.unwrap_or(0);
                gathered
                    .trajectories
                    .extend(trajectories.into_iter().map(|one| Trajectory {
                        rollout: one.rollout + next,
                        ..one
                    }));
            }
        }
    }
    gathered.ok_or(WeightsError::NoItems)
}

/// Training without rollouts: an update for each epoch.
pub struct Offline<'a> {
    /// What is trained; of `[phase]`, the epochs and checkpoints count.
    pub subject: Subject<'a>,
    /// What is learned from.
    pub gathered: &'a Gathered,
}

impl Offline<'_> {
    /// Runs it to its end, from wherever it was stopped.
    ///
    /// # Errors
    /// When it can't go on, or nothing is kept.
    pub fn run(&self, mut tell: impl FnMut(Told<'_>)) -> Result<Ended, WeightsError> {
        let settings = self.subject.settings;
        let updates = settings.phase.epochs.ceil().max(1.0) as u64;
        let (mut keeper, mut learning, mut state) = self.subject.open(&mut tell)?;
        let trajectories = &self.gathered.trajectories;
        let (accepted, kept) = select(trajectories, &settings.select);
        let (learned, dropped) = sequences(&accepted, learning.bounds())?;
        if learned.is_empty() {
            return Err(WeightsError::NothingKept {
                all: trajectories.len(),
                accepted: kept.accepted,
                dropped: dropped.total(),
            });
        }
        while state.step < updates {
            let progress = state.step as f64 / updates as f64;
            let update = learning.update(learned.clone(), state.step, progress)?;
            state.step += 1;
            state.updates += 1;
            let row = Row {
                step: state.step,
                epoch: state.step as f64,
                reward: mean_reward(trajectories),
                failed: 0,
                kept: kept.clone(),
                dropped,
                seconds: Seconds {
                    update: update.seconds,
                    ..Seconds::default()
                },
                update,
                moved: None,
                adapter: None,
                written: 0,
            };
            let row = keeper.keep(&mut state, &learning, row)?;
            tell(Told::Step(&row, updates - state.step));
        }
        self.subject.folder.leave(|folder| learning.ready(folder))?;
        Ok(Ended::Budget)
    }
}
