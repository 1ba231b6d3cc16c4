//! Graders: from an answer and a reference to a verdict.

mod math;
mod qa;

use serde::{Deserialize, Serialize};

pub use math::{Extracted, MathGrader, extract};
pub use qa::{contains_answer, f1, normalized};

/// What a grader says of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Verdict {
    /// In [0, 1]; more than one half is right.
    pub score: f64,
    /// Whether there was an answer where one belongs.
    pub formed: bool,
    /// What was graded.
    pub graded: String,
    /// How it was decided.
    pub why: String,
}

impl Verdict {
    fn right(graded: &str, why: String) -> Self {
        Self {
            score: 1.0,
            formed: true,
            graded: graded.to_owned(),
            why,
        }
    }

    fn wrong(graded: &str, why: String) -> Self {
        Self {
            score: 0.0,
            ..Self::right(graded, why)
        }
    }

    fn unformed(why: &str) -> Self {
        Self {
            formed: false,
            ..Self::wrong("", why.to_owned())
        }
    }

    /// Whether the answer is right.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.score > 0.5
    }
}

/// How the answers of a task are graded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Grader {
    /// The same string, apart from space around it.
    Exact,
    /// Mathematics.
    Math(MathGrader),
    /// Questions with short answers, as the SQuAD script grades them: normalised exact match.
    Qa(QaGrader),
    /// A puzzle's line of moves, played in the environment.
    Chess {
        /// Only the line's own moves count, as published; else any checkmate ends a puzzle, too.
        #[serde(default)]
        paper: bool,
    },
}

/// How short answers are graded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct QaGrader {
    /// A language model decides what exact match does not accept. The normalised exact match is its
    /// recorded fallback.
    #[serde(default)]
    pub judge: bool,
}

impl Grader {
    /// Grades an answer against its references, of which any may be met. Chess is graded by
    /// [`crate::chess`], from the moves.
    #[must_use]
    pub fn grade(&self, answer: &str, references: &[String]) -> Verdict {
        match self {
            Self::Exact => exact(answer, references),
            Self::Math(math) => best(references, |reference| math.grade(answer, reference)),
            Self::Qa(_) => qa::grade(answer, references),
            Self::Chess { .. } => Verdict::unformed("puzzles are graded by their moves"),
        }
    }
}

fn exact(answer: &str, references: &[String]) -> Verdict {
    let answer = answer.trim();
    if references
        .iter()
        .any(|reference| reference.trim() == answer)
    {
        Verdict::right(answer, "the same string".to_owned())
    } else {
        Verdict::wrong(answer, "another string".to_owned())
    }
}

/// The first verdict that is right, else the last.
fn best(references: &[String], grade: impl Fn(&String) -> Verdict) -> Verdict {
    let mut last = Verdict::unformed("there is no reference");
    for reference in references {
        last = grade(reference);
        if last.is_right() {
            break;
        }
    }
    last
}
