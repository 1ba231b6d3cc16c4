//! A weight phase: sample, keep what the verifier accepts, learn it, serve what was learned.
//!
//! Source: Kim et al.: WHALE (2026); `docs/training.md` explains the loop. Everything that a
//! step depends on is in the checkpoint before it and in the step's own file of trajectories, so that
//! a run that was stopped anywhere goes on to the same end.

mod error;
mod keeping;
mod learning;
mod offline;
mod policy;
mod probe;
mod rollouts;
mod row;
mod run;
mod settings;

use std::time::Instant;

use serde::{Deserialize, Serialize};
use whale_tasks::task::{Item, Split};
use whale_trainer::{
    FORMAT, Header, Patience, TrainError, Trajectories, Trajectory, Update,
    data::{Sequence, sequences},
    select::select,
};

pub use error::WeightsError;
pub use keeping::Subject;
pub use offline::{Gathered, Offline, gather};
pub use policy::{Policy, PolicyError, Served};
pub use probe::{Against, Moved, Said, Text};
pub use rollouts::Rolled;
pub use row::{Row, Seconds};
pub use run::{FILE, Identity, RunFolder};
pub use settings::{HandOverSettings, PhaseSettings, RolloutSettings, RunSettings, WrongSetting};

use crate::evaluate::Evaluation;
use keeping::State;
use learning::{Learning, Ready};

/// A weight phase.
pub struct Phase<'a> {
    /// What is trained.
    pub subject: Subject<'a>,
    /// How an item is rolled out and graded; its seed is the run's.
    pub evaluation: Evaluation<'a>,
    /// Whoever samples.
    pub policy: &'a dyn Policy,
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
    /// Runs it to its end, from wherever it was stopped.
    ///
    /// # Errors
    /// When it can't go on; what the last checkpoint holds stays.
    pub async fn run(&self, mut tell: impl FnMut(Told<'_>)) -> Result<Ended, WeightsError> {
        let settings = self.subject.settings;
        let items = self.evaluation.task.split(Split::Weights);
        let items = items.map_err(|_| WeightsError::NoItems)?;
        let total = ((settings.phase.epochs * items.len() as f64).round() as u64).max(1);
        let (mut keeper, mut learning, mut state) =
            tokio::task::block_in_place(|| self.subject.open(&mut tell))?;
        if state.updates > 0 {
            self.hand_over(&learning).await?;
        } else {
            self.policy.serve(Served::Base).await?;
        }
        loop {
            let ended = if state.patience.as_ref().is_some_and(Patience::is_over) {
                Some(Ended::Patience)
            } else if state.queue.given >= total {
                Some(Ended::Budget)
            } else {
                None
            };
            if let Some(ended) = ended {
                self.finish(&state, &learning)?;
                return Ok(ended);
            }
            let left = total - state.queue.given;
            let steps = state.step + left.div_ceil(settings.rollouts.prompts as u64);
            let row = self
                .step(&mut state, &mut learning, items, total, |rolled| {
                    tell(Told::Episode(rolled.0, steps, rolled.1));
                })
                .await?;
            let row = tokio::task::block_in_place(|| keeper.keep(&mut state, &learning, row))?;
            tell(Told::Step(&row, steps - row.step));
        }
    }

    /// Leaves what was learned where it is looked for; nothing where nothing was.
    fn finish(&self, state: &State, learning: &Learning) -> Result<(), WeightsError> {
        if state.updates > 0 {
            tokio::task::block_in_place(|| {
                self.subject.folder.leave(|folder| learning.ready(folder))
            })?;
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
        let progress = state.queue.given as f64 / total as f64;
        let left = usize::try_from(total - state.queue.given).unwrap_or(usize::MAX);
        let count = self.subject.settings.rollouts.prompts.min(left);
        let taken = state.queue.take(&ids, count);
        let chosen: Vec<&Item> = taken.iter().map(|(index, _)| &items[*index]).collect();

        let header = Header {
            format: FORMAT,
            model: self.subject.identity.model.clone(),
            tokenizer: self.subject.identity.tokenizer.clone(),
            adapter: state.adapter.clone(),
            harness: self.subject.identity.harness.clone(),
            task: self.subject.identity.task.clone(),
            seed: self.seed_of(number),
        };
        let mut file = self.trajectories(number, &header)?;
        let evaluation = Evaluation {
            seed: header.seed,
            ..self.evaluation.clone()
        };
        let failed = rollouts::roll(&evaluation, self.policy, &chosen, &mut file, |rolled| {
            tell((number, rolled));
        })
        .await?;
        let rolling = begun.elapsed().as_secs_f64();

        let trajectories = file.all();
        let (accepted, kept) = select(trajectories, &self.subject.settings.select);
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
            reward: mean_reward(trajectories),
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
            self.learn(state, learning, learned, progress, &mut row)
                .await?;
        }
        if let Some(patience) = &mut state.patience {
            patience.add(row.reward);
        }
        state.step = number;
        row.seconds = Seconds {
            rollouts: rolling,
            update: row.update.seconds,
            other: begun.elapsed().as_secs_f64() - rolling - row.update.seconds,
        };
        Ok(row)
    }

    /// The step's file. One of another adapter is of a step that was taken before a damaged checkpoint,
    /// on a device that does not compute the same bits twice: it is put aside.
    fn trajectories(&self, number: u64, header: &Header) -> Result<Trajectories, WeightsError> {
        let path = self.subject.folder.rollouts(number);
        match Trajectories::open(&path, header) {
            Err(TrainError::Other {
                what: "adapter", ..
            }) => {
                let aside = path.with_extension("old");
                tracing::warn!(
                    step = number,
                    file = %aside.display(),
                    "rollouts under other weights are put aside"
                );
                std::fs::rename(&path, &aside).map_err(|error| TrainError::Io {
                    path: path.display().to_string(),
                    error,
                })?;
                Ok(Trajectories::open(&path, header)?)
            }
            opened => Ok(opened?),
        }
    }

    async fn learn(
        &self,
        state: &mut State,
        learning: &mut Learning,
        learned: Vec<Sequence>,
        progress: f64,
        row: &mut Row,
    ) -> Result<(), WeightsError> {
        if state.said.texts.is_empty() {
            state.said = self.ask(learning, probe::texts(&learned)).await?;
        }
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
        let folder = self.subject.folder.handed();
        let _ = std::fs::remove_dir_all(&folder);
        let ready = tokio::task::block_in_place(|| learning.ready(&folder))?;
        self.policy.serve(ready.served()).await?;
        let _ = std::fs::remove_dir_all(&folder);
        Ok(match ready {
            Ready::Adapter(_, hash) => Some(hash),
            Ready::Weights(_) => None,
        })
    }

    async fn ask(&self, learning: &Learning, texts: Vec<Text>) -> Result<Said, WeightsError> {
        let all: Vec<Vec<u32>> = texts.iter().map(|text| text.tokens.clone()).collect();
        let scored = self.policy.score(&all).await?;
        let sampler = texts
            .iter()
            .zip(scored)
            .flat_map(|(text, said)| text.places.iter().map(move |place| said[place - 1]))
            .collect();
        Ok(Said {
            trainer: tokio::task::block_in_place(|| learning.score(&texts))?,
            sampler,
            texts,
        })
    }

    /// The seed of a step's episodes: an item that comes again in a later epoch is rolled out anew.
    fn seed_of(&self, step: u64) -> u64 {
        let parts = [self.subject.settings.seed.to_le_bytes(), step.to_le_bytes()];
        whale_runtime::Digest::of(&parts.concat()).to_u64()
    }
}

/// The mean reward; episodes end in any order, and sums depend on it.
fn mean_reward(trajectories: &[Trajectory]) -> f64 {
    let mut rewards: Vec<f64> = trajectories.iter().map(|one| one.reward).collect();
    rewards.sort_by(f64::total_cmp);
    rewards.iter().sum::<f64>() / rewards.len().max(1) as f64
}
