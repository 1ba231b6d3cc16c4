//! Answers to problems of mathematics.
//!
//! An answer is equal to the reference when it is the same kind of thing and has the same value:
//! exactly, where both are rational; as functions over a finite field, where there are variables; to
//! two hundred bits, where there are roots and the like. What is not understood is compared as text.
//! Every step is bounded by the sizes of what it works on, not by a clock, so that a verdict never
//! depends on the machine.

mod equal;
mod exact;
mod expression;
mod extract;
mod form;
mod modular;
mod numeric;
mod parse;
mod spelling;
#[cfg(test)]
mod table;
mod unit;

pub use extract::{Extracted, extract};

use super::Verdict;

/// A longer answer is wrong.
const LONGEST: usize = 4096;

/// How answers are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MathGrader {
    /// Compare as strings, as the published verifier does.
    #[serde(default)]
    pub strict: bool,
    /// A tag that answers may stand in, such as `answer`.
    #[serde(default)]
    pub tag: Option<String>,
}

impl MathGrader {
    /// Whether an answer is the reference.
    #[must_use]
    pub fn grade(&self, answer: &str, reference: &str) -> Verdict {
        let found = if self.strict {
            match extract::boxed(answer).unwrap_or(Extracted::Found(answer.trim())) {
                Extracted::Found(found) => found,
                Extracted::Broken => {
                    return Verdict::unformed("the last box is empty or not closed");
                }
            }
        } else {
            match extract(answer, self.tag.as_deref()) {
                Extracted::Found(found) => found,
                Extracted::Broken => {
                    return Verdict::unformed("there is no answer, or its box is not closed");
                }
            }
        };
        if found.len() > LONGEST {
            return Verdict::wrong(
                &found[..found.floor_char_boundary(80)],
                format!(
                    "{} bytes are no answer; at most {LONGEST} are read",
                    found.len()
                ),
            );
        }
        let reference = match extract(reference, None) {
            Extracted::Found(reference) if !self.strict => reference,
            _ => reference.trim(),
        };
        if self.strict {
            return if found == reference {
                Verdict::right(found, "the same string".to_owned())
            } else {
                Verdict::wrong(found, "another string".to_owned())
            };
        }
        let (equal, why) = equal::equal(found, reference);
        if equal {
            Verdict::right(found, why.to_owned())
        } else {
            Verdict::wrong(found, why.to_owned())
        }
    }
}
