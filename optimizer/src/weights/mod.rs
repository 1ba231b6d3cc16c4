//! A weight phase: sample, keep what the verifier accepts, learn it, serve what was learned.
//!
//! Source: Kim et al.: WHALE (2026); `docs/training.md` explains the loop. Everything that a
//! step depends on is in the checkpoint before it and in the step's own file of trajectories, so that
//! a run that was stopped anywhere goes on to the same end.

mod error;
mod learning;
mod offline;
mod policy;
mod probe;
mod rollouts;
mod run;
mod settings;

use std::{
    path::Path,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use candle_core::Device;
use serde::{Deserialize, Serialize};
use whale_tasks::task::{Item, Split};
use whale_trainer::{
    FORMAT, Header, Patience, Queue, Trajectories, Update,
    checkpoint::Checkpoints,
    data::{Dropped, Sequence, sequences},
    metrics::{Events, Rows},
    select::{Kept, select},
};

pub use error::WeightsError;
pub use offline::{Gathered, Offline, gather};
pub use policy::{Policy, PolicyError, Served};
pub use probe::{Moved, Said};
pub use rollouts::Rolled;
pub use run::{FILE, Identity, RunFolder};
pub use settings::{HandOverSettings, PhaseSettings, RolloutSettings, RunSettings, WrongSetting};

use crate::evaluate::Evaluation;
use learning::{Learning, Ready};

/// The version of a checkpoint's state.
const STATE: u32 = 1;
/// Texts of a probe.
const PROBES: usize = 6;
/// The longest of them, in tokens.
const LONGEST_PROBE: usize = 128;

/// A weight phase.
pub struct Phase<'a> {
    /// What it is.
    pub settings: &'a RunSettings,
    /// Its folder.
    pub folder: RunFolder,
    /// What it was begun with.
    pub identity: Identity,
    /// How an item is rolled out and graded; its seed is the run's.
    pub evaluation: Evaluation<'a>,
    /// Whoever samples.
    pub policy: &'a dyn Policy,
    /// The model that is trained.
    pub base: &'a Path,
    /// Where it is trained.
    pub device: Device,
    /// Token ids that it has.
    pub vocabulary: usize,
}

/// What is told while a phase runs.
pub enum Told<'a> {
    /// It goes on after so many steps; newer checkpoints were damaged in these ways.
    GoesOn(u64, &'a [(String, String)]),
    /// An episode has ended, in this step of all.
    Episode(u64, u64, &'a Rolled),
    /// A step has ended; so many are left, as far as can be said.
    Step(&'a Row, u64),
}

/// What is known of a step: a row of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Row {
    /// From 1 on.
    pub step: u64,
    /// Epochs that are over.
    pub epoch: f64,
    /// The mean reward.
    pub reward: f64,
    /// Episodes that failed for no fault of the harness, and count for nothing.
    pub failed: usize,
    /// What was kept.
    pub kept: Kept,
    /// What was left out of what was kept.
    pub dropped: Dropped,
    /// What was learned; of no steps where nothing was kept.
    pub update: Update,
    /// How trainer and sampler moved.
    pub moved: Option<Moved>,
    /// The hash of the adapter that is served from here on.
    pub adapter: Option<String>,
    /// Tokens that the model wrote.
    pub written: usize,
    /// Seconds of the rollouts, the update, and everything else.
    pub seconds: Seconds,
}

/// Where a step's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Seconds {
    /// Rolling out and grading.
    pub rollouts: f64,
    /// Learning.
    pub update: f64,
    /// Selecting, handing over, probing, keeping.
    pub other: f64,
}

/// Everything that later steps depend on, beside what the trainer keeps.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct State {
    format: u32,
    /// Steps that were taken.
    step: u64,
    /// Of the optimizer.
    optimizer_steps: u64,
    /// Updates that were made.
    updates: u64,
    queue: Queue,
    patience: Option<Patience>,
    said: Said,
    adapter: Option<String>,
    row: Option<Row>,
}

impl State {
    fn begun(settings: &RunSettings) -> Self {
        Self {
            format: STATE,
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

/// How a phase ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The budget is used up.
    Budget,
    /// Its reward has set no new best for as long as patience lasts.
    Patience,
}

impl Phase<'_> {
    /// Runs it to its end, from wherever it was stopped. Gives how it ended, and the folder of the
    /// last checkpoint.
    ///
    /// # Errors
    /// When it can't go on; what the last checkpoint holds stays.
    pub async fn run(&self, mut tell: impl FnMut(Told<'_>)) -> Result<Ended, WeightsError> {
        self.settings.check()?;
        let items = self.evaluation.task.split(Split::Weights);
        let items = items.map_err(|_| WeightsError::NoItems)?;
        let total = ((self.settings.phase.epochs * items.len() as f64).round() as u64).max(1);
        let kept = self.settings.phase.checkpoints;
        let checkpoints = Checkpoints::open(&self.folder.checkpoints(), kept)?;
        let mut learning = tokio::task::block_in_place(|| {
            let (train, seed) = (&self.settings.train, self.settings.seed);
            let updates = self.folder.updates();
            let numbers = (self.vocabulary, seed);
            Learning::begin(train, self.base, &self.device, &updates, numbers)
        })?;
        let mut state = State::begun(self.settings);
        if let Some(found) = checkpoints.newest::<State>()? {
            state = found.state;
            learning.restore(&found.folder, state.optimizer_steps)?;
            tell(Told::GoesOn(state.step, &found.damaged));
        }
        let rows = Rows::open(&self.folder.metrics(), state.step)?;
        self.complete(&rows, &state)?;
        let mut events = Events::begin(&self.folder.events(), now())?;
        if state.updates > 0 {
            self.hand_over(&learning).await?;
        } else {
            self.policy.serve(Served::Base).await?;
        }
        loop {
            if state.patience.as_ref().is_some_and(Patience::is_over) {
                self.finish(&state, &learning)?;
                return Ok(Ended::Patience);
            }
            if state.queue.given >= total {
                self.finish(&state, &learning)?;
                return Ok(Ended::Budget);
            }
            let prompts = self.settings.rollouts.prompts as u64;
            let left = total - state.queue.given;
            let steps = state.step + left.div_ceil(prompts);
            let row = self
                .step(&mut state, &mut learning, items, total, |rolled| {
                    tell(Told::Episode(rolled.0, steps, rolled.1));
                })
                .await?;
            let begun = Instant::now();
            tokio::task::block_in_place(|| {
                state.row = Some(row);
                checkpoints.write(state.step, &state, |folder| learning.save(folder))
            })?;
            if let Some(row) = &mut state.row {
                row.seconds.other += begun.elapsed().as_secs_f64();
                rows.push(row)?;
                events.push(now(), row.step, &row.numbers())?;
                tell(Told::Step(row, steps - row.step));
            }
        }
    }

    /// Leaves what was learned where it is looked for; nothing where nothing was.
    fn finish(&self, state: &State, learning: &Learning) -> Result<(), WeightsError> {
        if state.updates > 0 {
            tokio::task::block_in_place(|| self.folder.leave(|folder| learning.ready(folder)))?;
        }
        Ok(())
    }

    /// Adds the last step's row where the process was stopped between checkpoint and row.
    fn complete(&self, rows: &Rows, state: &State) -> Result<(), WeightsError> {
        let Some(row) = &state.row else { return Ok(()) };
        let path = self.folder.metrics();
        let known: Vec<Row> = if path.exists() {
            Rows::read(&path)?
        } else {
            Vec::new()
        };
        if known.last().is_none_or(|last| last.step < row.step) {
            rows.push(row)?;
        }
        Ok(())
    }

    /// One step, up to its checkpoint.
    async fn step(
        &self,
        state: &mut State,
        learning: &mut Learning,
        items: &[Item],
        total: u64,
        mut tell: impl FnMut((u64, &Rolled)),
    ) -> Result<Row, WeightsError> {
        let begun = Instant::now();
        let number = state.step + 1;
        let ids: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
        let left = usize::try_from(total - state.queue.given).unwrap_or(usize::MAX);
        let count = self.settings.rollouts.prompts.min(left);
        let taken = state.queue.take(&ids, count);
        let chosen: Vec<&Item> = taken.iter().map(|(index, _)| &items[*index]).collect();

        let header = Header {
            format: FORMAT,
            model: self.identity.model.clone(),
            tokenizer: self.identity.tokenizer.clone(),
            adapter: state.adapter.clone(),
            harness: self.identity.harness.clone(),
            task: self.identity.task.clone(),
            seed: self.seed_of(number),
        };
        let mut file = Trajectories::open(&self.folder.rollouts(number), &header)?;
        let evaluation = Evaluation {
            seed: header.seed,
            ..self.evaluation.clone()
        };
        let (rolled, failed) =
            rollouts::roll(&evaluation, self.policy, &chosen, &mut file, |rolled| {
                tell((number, rolled));
            })
            .await?;
        let rolling = begun.elapsed().as_secs_f64();

        let trajectories = file.all();
        let (accepted, kept) = select(trajectories, &self.settings.select);
        let (learned, dropped) = sequences(&accepted, learning.bounds())?;
        if !trajectories.is_empty() && trajectories.iter().all(|one| one.calls.is_empty()) {
            return Err(WeightsError::NoTokens);
        }
        if dropped.drifted > 0 {
            tracing::warn!(
                step = number,
                drifted = dropped.drifted,
                "calls whose ids do not fit what was said are left out"
            );
        }
        let mut row = Row {
            step: number,
            epoch: state.queue.epochs(items.len()),
            reward: rolled.reward / rolled.done.max(1) as f64,
            failed,
            kept,
            dropped,
            update: Update::default(),
            moved: None,
            adapter: state.adapter.clone(),
            written: trajectories
                .iter()
                .flat_map(|trajectory| &trajectory.calls)
                .map(|call| call.sampled.len())
                .sum(),
            seconds: Seconds::default(),
        };
        if !learned.is_empty() {
            self.learn(state, learning, learned, total, &mut row)
                .await?;
        }
        if let Some(patience) = &mut state.patience {
            patience.add(row.reward);
        }
        state.step = number;
        state.optimizer_steps = learning.steps();
        row.seconds = Seconds {
            rollouts: rolling,
            update: row.update.seconds,
            other: begun.elapsed().as_secs_f64() - rolling - row.update.seconds,
        };
        Ok(row)
    }

    async fn learn(
        &self,
        state: &mut State,
        learning: &mut Learning,
        learned: Vec<Sequence>,
        total: u64,
        row: &mut Row,
    ) -> Result<(), WeightsError> {
        if state.said.texts.is_empty() {
            state.said = self.ask(learning, probes(&learned)).await?;
        }
        let progress = state.queue.given as f64 / total as f64;
        row.update =
            tokio::task::block_in_place(|| learning.update(learned, state.updates, progress))?;
        state.updates += 1;
        state.adapter = self.hand_over(learning).await?;
        row.adapter.clone_from(&state.adapter);
        let said = self.ask(learning, state.said.texts.clone()).await?;
        row.moved = Some(Moved::between(&state.said, &said).check()?);
        state.said = said;
        Ok(())
    }

    /// Serves what was learned; gives the adapter's hash.
    async fn hand_over(&self, learning: &Learning) -> Result<Option<String>, WeightsError> {
        let folder = self.folder.handed();
        let _ = std::fs::remove_dir_all(&folder);
        let ready = tokio::task::block_in_place(|| learning.ready(&folder))?;
        self.policy.serve(ready.served()).await?;
        let _ = std::fs::remove_dir_all(&folder);
        Ok(match ready {
            Ready::Adapter(_, hash) => Some(hash),
            Ready::Weights(_) => None,
        })
    }

    async fn ask(&self, learning: &Learning, texts: Vec<Vec<u32>>) -> Result<Said, WeightsError> {
        Ok(Said {
            trainer: tokio::task::block_in_place(|| learning.score(&texts))?,
            sampler: self.policy.score(&texts).await?.concat(),
            texts,
        })
    }

    /// The seed of a step's episodes: an item that comes again in a later epoch is rolled out anew.
    fn seed_of(&self, step: u64) -> u64 {
        let parts = [self.settings.seed.to_le_bytes(), step.to_le_bytes()];
        whale_runtime::Digest::of(&parts.concat()).to_u64()
    }
}

/// Some sequences, evenly spread.
fn probes(learned: &[Sequence]) -> Vec<Vec<u32>> {
    let count = PROBES.min(learned.len());
    let text = |index: usize| {
        let tokens = &learned[index * learned.len() / count].supervised.tokens;
        // From the beginning on: a text that begins in the middle is none that was seen.
        tokens[..tokens.len().min(LONGEST_PROBE)].to_vec()
    };
    (0..count).map(text).collect()
}

impl Row {
    /// What TensorBoard shows.
    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let share = self.kept.kept as f64 / self.kept.rollouts.max(1) as f64;
        let mut numbers = vec![
            ("rollouts/reward", self.reward),
            ("rollouts/kept", share),
            ("rollouts/failed", self.failed as f64),
            ("rollouts/tokens", self.written as f64),
            ("seconds/rollouts", self.seconds.rollouts),
            ("seconds/update", self.seconds.update),
            ("seconds/other", self.seconds.other),
        ];
        if self.update.steps > 0 {
            numbers.extend([
                ("train/loss", self.update.loss),
                ("train/gradient", self.update.gradient),
                ("train/rate", self.update.rate),
                ("train/supervised", self.update.supervised as f64),
                ("train/dropped", self.dropped.total() as f64),
            ]);
        }
        numbers.extend(
            self.update
                .parity
                .map(|parity| ("train/parity", parity.mean)),
        );
        numbers.extend(self.moved.map(|moved| ("train/moved", moved.sampler)));
        numbers
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |time| time.as_secs_f64())
}
