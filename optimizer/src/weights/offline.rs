//! The same training on trajectories that are there already.

use std::path::{Path, PathBuf};

use candle_core::Device;
use whale_trainer::{
    Header, Trajectories, Trajectory,
    checkpoint::Checkpoints,
    data::sequences,
    metrics::{Events, Rows},
    select::select,
};

use super::{
    Ended, Row, RunFolder, RunSettings, Seconds, State, Told, WeightsError, learning::Learning, now,
};

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
    /// What is done; of `[phase]`, the epochs and checkpoints.
    pub settings: &'a RunSettings,
    /// The run's folder.
    pub folder: RunFolder,
    /// What is learned from.
    pub gathered: &'a Gathered,
    /// The model that is trained.
    pub base: &'a Path,
    /// Where it is trained.
    pub device: Device,
    /// Token ids that it has.
    pub vocabulary: usize,
}

impl Offline<'_> {
    /// Runs it to its end, from wherever it was stopped.
    ///
    /// # Errors
    /// When it can't go on, or nothing is kept.
    pub fn run(&self, mut tell: impl FnMut(Told<'_>)) -> Result<Ended, WeightsError> {
        self.settings.check()?;
        let updates = self.settings.phase.epochs.ceil().max(1.0) as u64;
        let checkpoints =
            Checkpoints::open(&self.folder.checkpoints(), self.settings.phase.checkpoints)?;
        let numbers = (self.vocabulary, self.settings.seed);
        let folder = self.folder.updates();
        let mut learning = Learning::begin(
            &self.settings.train,
            self.base,
            &self.device,
            &folder,
            numbers,
        )?;
        let mut state = State::begun(self.settings);
        if let Some(found) = checkpoints.newest::<State>()? {
            state = found.state;
            learning.restore(&found.folder, state.optimizer_steps)?;
            tell(Told::GoesOn(state.step, &found.damaged));
        }
        let rows = Rows::open(&self.folder.metrics(), state.step)?;
        let mut events = Events::begin(&self.folder.events(), now())?;

        let trajectories = &self.gathered.trajectories;
        let (accepted, kept) = select(trajectories, &self.settings.select);
        let (learned, dropped) = sequences(&accepted, learning.bounds())?;
        if learned.is_empty() {
            return Err(WeightsError::NothingKept {
                all: trajectories.len(),
                accepted: kept.accepted,
                dropped: dropped.total(),
            });
        }
        let rewards: f64 = trajectories.iter().map(|one| one.reward).sum();
        while state.step < updates {
            let progress = state.step as f64 / updates as f64;
            let update = learning.update(learned.clone(), state.step, progress)?;
            state.step += 1;
            state.updates += 1;
            state.optimizer_steps = learning.steps();
            let row = Row {
                step: state.step,
                epoch: state.step as f64,
                reward: rewards / trajectories.len() as f64,
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
            state.row = Some(row.clone());
            checkpoints.write(state.step, &state, |folder| learning.save(folder))?;
            rows.push(&row)?;
            events.push(now(), row.step, &row.numbers())?;
            tell(Told::Step(&row, updates - state.step));
        }
        self.folder.leave(|folder| learning.ready(folder))?;
        Ok(Ended::Budget)
    }
}
