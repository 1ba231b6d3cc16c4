//! Every item, `k` times: episodes at once, graded, written down as they end.
//!
//! An episode is graded by the host after it has ended, from its record. What failed for no fault of
//! the harness is tried again and never scored.

mod diagnostics;
mod environment;
mod error;
mod grading;
mod journal;
mod judge;
mod summary;

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Instant};

use futures::{StreamExt as _, stream};
use whale_runtime::{
    Limits,
    episode::{self, Live, Outcome, Record, Spec},
    ports::Ports,
    sandbox::{Harness, Sandbox},
};
use whale_tasks::{
    grade::Grader,
    task::{Item, Reference, Split, Task},
};

pub use error::EvaluateError;
pub use journal::{Entry, Header, Journal};
pub use judge::Judge;
pub use summary::{CONFIDENCE, Slow, Summary, pairs, scores};

use environment::PuzzleEnvironment;
use grading::Grading;

/// Times that an episode is tried when it fails for no fault of the harness.
const TRIES: usize = 3;

/// What is evaluated, and how.
#[derive(Clone)]
pub struct Evaluation<'a> {
    /// Where episodes run.
    pub sandbox: &'a Sandbox,
    /// The harness.
    pub harness: &'a Harness,
    /// What it may call.
    pub ports: &'a Ports,
    /// The task.
    pub task: &'a Task,
    /// Decides on answers that match no reference exactly, where the grader asks for it.
    pub judge: Option<Arc<Judge>>,
    /// The limits of each episode.
    pub limits: Limits,
    /// The seed of the run.
    pub seed: u64,
    /// Rollouts of each item.
    pub k: u32,
    /// Episodes at once.
    pub jobs: usize,
    /// Writes the record of each episode into this folder.
    pub traces: Option<PathBuf>,
}

/// How far an evaluation is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Episodes that are done, those of an earlier start included.
    pub done: usize,
    /// All episodes.
    pub all: usize,
    /// Since when.
    pub begun: Instant,
    /// Episodes that were done before.
    pub before: usize,
}

impl Evaluation<'_> {
    /// What fixes the results: a journal with another header belongs to another evaluation.
    #[must_use]
    pub fn header(&self, split: Split, items: &[Item]) -> Header {
        Header {
            format: journal::FORMAT,
            task: self.task.settings.name.clone(),
            splits: self.task.digest.clone(),
            content: self.task.content.clone(),
            split,
            items: items.len(),
            grader: self.task.settings.grader.clone(),
            judge: self.judge.as_ref().map(|judge| judge.name()),
            harness: self.harness.digest.as_str().to_owned(),
            model: self.ports.model.identity(),
            seed: self.seed,
            k: self.k,
            limits: self.limits.clone(),
        }
    }

    /// Runs the episodes that the journal lacks. After each, `tell` hears of it.
    ///
    /// # Errors
    /// When the sandbox fails as a whole, or the journal can't be written.
    pub async fn run(
        &self,
        items: &[Item],
        journal: &mut Journal,
        mut tell: impl FnMut(&Progress, &Entry),
    ) -> Result<(), EvaluateError> {
        let done: HashSet<(String, u32)> = journal
            .entries()
            .iter()
            .filter(|entry| entry.is_scored())
            .map(|entry| (entry.item.clone(), entry.rollout))
            .collect();
        let missing: Vec<(&Item, u32)> = items
            .iter()
            .flat_map(|item| (0..self.k).map(move |rollout| (item, rollout)))
            .filter(|(item, rollout)| !done.contains(&(item.id.clone(), *rollout)))
            .collect();
        let all = items.len() * self.k as usize;
        let before = all - missing.len();
        let mut progress = Progress {
            done: before,
            all,
            begun: Instant::now(),
            before,
        };
        let mut episodes = stream::iter(missing)
            .map(|(item, rollout)| async move {
                let (_, entry) = self.graded(item, rollout).await?;
                Ok::<_, EvaluateError>(entry)
            })
            .buffer_unordered(self.jobs.max(1));
        while let Some(entry) = episodes.next().await {
            let entry = entry?;
            progress.done += 1;
            tell(&progress, &entry);
            journal.push(entry)?;
        }
        journal.sync()
    }

    /// One episode and its grade; it is tried again when it fails for no fault of the harness.
    ///
    /// # Errors
    /// When the sandbox fails as a whole, the item has no reference, or a trace can't be written.
    pub async fn graded(
        &self,
        item: &Item,
        rollout: u32,
    ) -> Result<(Record, Entry), EvaluateError> {
        let missing = || EvaluateError::NoReference {
            item: item.id.clone(),
        };
        let reference = self.task.references.of(&item.id).ok_or_else(missing)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let record = self.episode(item, rollout, reference).await?;
            let failed = matches!(record.outcome, Outcome::Infrastructure { .. });
            if failed && tries < TRIES {
                continue;
            }
            if let Some(folder) = &self.traces {
                // Ids come from a file and are no file names.
                let digest = whale_runtime::Digest::of(item.id.as_bytes());
                let name = format!("{}-{rollout:03}.json", digest.short());
                record
                    .write(&folder.join(name))
                    .map_err(EvaluateError::Trace)?;
            }
            let grading = Grading {
                grader: &self.task.settings.grader,
                judge: self.judge.as_deref(),
            };
            let entry = grading.entry(item, reference, &record, tries).await;
            return Ok((record, entry));
        }
    }

    /// What the guest sees is made from the item alone.
    fn spec(&self, item: &Item, rollout: u32) -> Spec {
        Spec {
            item: item.id.clone(),
            rollout,
            seed: self.seed,
            prompt: item.prompt.clone(),
            fields: item.fields.clone(),
            limits: self.limits.clone(),
        }
    }

    async fn episode(
        &self,
        item: &Item,
        rollout: u32,
        reference: &Reference,
    ) -> Result<Record, EvaluateError> {
        let spec = self.spec(item, rollout);
        let mut live = Live::new(&spec, self.ports);
        if let (Reference::Line(puzzle), Grader::Chess { paper }) =
            (reference, &self.task.settings.grader)
        {
            live = live.with_environment(Box::new(PuzzleEnvironment::new(puzzle, *paper)));
        }
        let model = self.ports.model.name();
        let record = episode::run(self.sandbox, self.harness, spec.clone(), model, &mut live).await;
        record.map_err(EvaluateError::Sandbox)
    }
}
