//! From an episode's record to an entry of the journal.

use whale_runtime::episode::{Outcome, Record};
use whale_tasks::{
    chess,
    grade::{Grader, Verdict},
    task::{Item, Reference},
};

use super::{
    Entry, Judge,
    diagnostics::{self, Signals, Written},
};

/// A longer answer is cut before it is graded.
const LONGEST: usize = 1 << 20;

/// How episodes are graded.
pub(super) struct Grading<'a> {
    pub(super) grader: &'a Grader,
    pub(super) judge: Option<&'a Judge>,
}

impl Grading<'_> {
    pub(super) async fn entry(
        &self,
        item: &Item,
        reference: &Reference,
        record: &Record,
        tries: usize,
    ) -> Entry {
        let mut signals = diagnostics::common(record);
        let verdict = match (&record.outcome, reference) {
            (Outcome::Infrastructure { .. }, _) => None,
            // A puzzle is graded by its moves, whatever the harness says at the end.
            (_, Reference::Line(puzzle)) => {
                let paper = matches!(self.grader, Grader::Chess { paper: true });
                let written = Written::of(record);
                let (verdict, played) = chess::grade(puzzle, &written.acts(), paper);
                diagnostics::chess(&mut signals, puzzle, &played);
                Some(verdict)
            }
            (Outcome::Answered { answer }, Reference::Answers(references)) => Some(
                self.verdict(item, answer, references, record, &mut signals)
                    .await,
            ),
            _ => None,
        };
        if let Some(verdict) = &verdict {
            diagnostics::flag(&mut signals, "format", verdict.formed);
        } else if record.outcome.is_harness_error() {
            diagnostics::flag(&mut signals, "format", false);
        }
        Entry {
            item: item.id.clone(),
            cluster: item.cluster.clone(),
            rollout: record.spec.rollout,
            outcome: record.outcome.clone(),
            verdict,
            signals,
            used: record.used.clone(),
            took_ms: record.times.took / 1000,
            tries,
        }
    }

    async fn verdict(
        &self,
        item: &Item,
        answer: &str,
        references: &[String],
        record: &Record,
        signals: &mut Signals,
    ) -> Verdict {
        let answer = &answer[..answer.floor_char_boundary(LONGEST)];
        let mut verdict = self.grader.grade(answer, references);
        if let (Grader::Qa(qa), false, Some(judge)) = (self.grader, verdict.is_right(), self.judge)
            && qa.judge
            && verdict.formed
        {
            match judge
                .accepts(&item.prompt, references, &verdict.graded)
                .await
            {
                Ok(accepts) => {
                    diagnostics::flag(signals, "judge-failed", false);
                    verdict.score = f64::from(u8::from(accepts));
                    verdict.why = format!(
                        "the judge {} it",
                        if accepts { "accepts" } else { "rejects" }
                    );
                }
                Err(why) => {
                    diagnostics::flag(signals, "judge-failed", true);
                    verdict.why = format!("{}; the judge failed: {why}", verdict.why);
                }
            }
        }
        if matches!(self.grader, Grader::Qa(_))
            && let Some(found) = diagnostics::retrieved(record, references)
        {
            diagnostics::flag(signals, "retrieved", found);
            if found {
                diagnostics::set(signals, "extracted", verdict.score);
            }
        }
        verdict
    }
}
