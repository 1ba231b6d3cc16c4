//! What a run keeps from step to step, and how it goes on with it.

use std::{
    path::Path,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use candle_core::Device;
use serde::{Deserialize, Serialize};
use whale_trainer::{
    Patience, Queue,
    checkpoint::Checkpoints,
    metrics::{Events, Rows},
};

use super::{Identity, Row, RunFolder, RunSettings, Said, Told, WeightsError, learning::Learning};

/// The version of a checkpoint's state.
const STATE: u32 = 1;

/// What is trained, how, and where it is kept.
pub struct Subject<'a> {
    /// The run's settings.
    pub settings: &'a RunSettings,
    /// The run's folder.
    pub folder: RunFolder,
    /// What it was begun with.
    pub identity: Identity,
    /// The model that is trained.
    pub base: &'a Path,
    /// Where it is trained.
    pub device: Device,
    /// Token ids that it has.
    pub vocabulary: usize,
}

/// Everything that later steps depend on, beside what the trainer keeps.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct State {
    format: u32,
    /// Of the run that it belongs to.
    identity: Identity,
    /// Steps that were taken.
    pub(super) step: u64,
    /// Of the optimizer.
    pub(super) optimizer_steps: u64,
    /// Updates that were made.
    pub(super) updates: u64,
    pub(super) queue: Queue,
    pub(super) patience: Option<Patience>,
    pub(super) said: Said,
    pub(super) adapter: Option<String>,
    row: Option<Row>,
}

impl State {
    fn begun(settings: &RunSettings, identity: &Identity) -> Self {
        Self {
            format: STATE,
            identity: identity.clone(),
            step: 0,
            optimizer_steps: 0,
            updates: 0,
            queue: Queue::new(settings.seed),
            patience: settings.phase.patience.map(Patience::new),
            said: Said::default(),
            adapter: None,
            row: None,
        }
    }
}

/// Where steps are kept.
pub(super) struct Keeper {
    checkpoints: Checkpoints,
    rows: Rows,
    events: Events,
}

impl Subject<'_> {
    /// Begins, or goes on after the last checkpoint that is whole.
    pub(super) fn open(
        &self,
        tell: &mut dyn FnMut(Told<'_>),
    ) -> Result<(Keeper, Learning, State), WeightsError> {
        self.settings.check()?;
        let kept = self.settings.phase.checkpoints;
        let checkpoints = Checkpoints::open(&self.folder.checkpoints(), kept)?;
        let mut learning = Learning::begin(self)?;
        let mut state = State::begun(self.settings, &self.identity);
        if let Some(found) = checkpoints.newest::<State>()? {
            state = found.state;
            self.folder
                .check_identity(&state.identity, &self.identity)?;
            learning.restore(&found.folder, state.optimizer_steps)?;
            tell(Told::GoesOn(state.step, &found.damaged));
        }
        let keeper = Keeper {
            checkpoints,
            rows: Rows::open(&self.folder.metrics(), state.step)?,
            events: Events::begin(&self.folder.events(), now())?,
        };
        keeper.complete(&self.folder.metrics(), &state)?;
        Ok((keeper, learning, state))
    }
}

impl Keeper {
    /// Keeps a step that was taken: first its checkpoint, then what is told of it.
    pub(super) fn keep(
        &mut self,
        state: &mut State,
        learning: &Learning,
        mut row: Row,
    ) -> Result<Row, WeightsError> {
        let begun = Instant::now();
        state.optimizer_steps = learning.steps();
        state.row = Some(row.clone());
        self.checkpoints
            .write(state.step, state, |folder| learning.save(folder))?;
        row.seconds.other += begun.elapsed().as_secs_f64();
        self.rows.push(&row)?;
        self.events.push(now(), row.step, &row.numbers())?;
        Ok(row)
    }

    /// Adds the last step's row where the process was stopped between checkpoint and row.
    fn complete(&self, path: &Path, state: &State) -> Result<(), WeightsError> {
        let Some(row) = &state.row else { return Ok(()) };
        let known: Vec<Row> = if path.exists() {
            Rows::read(path)?
        } else {
            Vec::new()
        };
        if known.last().is_none_or(|last| last.step < row.step) {
            self.rows.push(row)?;
        }
        Ok(())
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |time| time.as_secs_f64())
}
