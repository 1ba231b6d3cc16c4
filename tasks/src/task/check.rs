//! What is wrong with a task's items.

use std::collections::HashMap;

use serde::Serialize;

use super::{Place, Reference, Settings, Split, TaskError, items::Loaded};
use crate::grade::{contains_answer, normalized};

/// Something that is wrong with an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Finding {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// Whether the task can't be used like that.
    pub fatal: bool,
    /// What.
    pub what: String,
}

/// References that are shorter than this occur in prompts by chance.
const TELLING: usize = 4;

/// Everything that is wrong, in the order of the lines.
pub(super) fn findings(loaded: &[Loaded], settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut ids: HashMap<&str, &Place> = HashMap::new();
    let mut texts: HashMap<String, (&Place, Option<Split>)> = HashMap::new();
    let mut clusters: HashMap<&str, (Split, &Place)> = HashMap::new();
    for one in loaded {
        let mut find = |fatal: bool, what: String| {
            findings.push(Finding {
                place: one.place.clone(),
                fatal,
                what,
            });
        };
        if one.item.id.trim().is_empty() {
            find(true, "its id is empty".to_owned());
        } else if let Some(first) = ids.insert(&one.item.id, &one.place) {
            find(
                true,
                format!("the id `{}` stands at {first}, too", one.item.id),
            );
        }
        match &one.reference {
            Err(why) => find(true, why.clone()),
            Ok(Reference::Answers(answers)) => {
                let telling: Vec<String> = answers
                    .iter()
                    .filter(|answer| normalized(answer).len() >= TELLING)
                    .cloned()
                    .collect();
                if contains_answer(&one.item.prompt, &telling) {
                    find(false, "its answer stands in its own prompt".to_owned());
                }
            }
            Ok(Reference::Line(_)) => {}
        }
        let length = one.item.prompt.len();
        if one.item.prompt.trim().is_empty() {
            find(true, "its prompt is empty".to_owned());
        } else if length > settings.longest_prompt {
            find(
                true,
                format!(
                    "its prompt has {length} bytes, `longest-prompt` allows {}",
                    settings.longest_prompt
                ),
            );
        }
        if let Some(split) = one.split {
            match clusters.get(one.item.cluster.as_str()) {
                Some((other, first)) if *other != split => find(
                    true,
                    format!(
                        "it is in `{split}`, and {first}, of the same cluster, is in `{other}`"
                    ),
                ),
                _ => {
                    clusters.insert(&one.item.cluster, (split, &one.place));
                }
            }
        }
        // Puzzles have one prompt, and their position by itself.
        if let Ok(Reference::Answers(_)) = one.reference {
            let text = normalized(&one.item.prompt);
            match texts.get(&text) {
                Some((first, split)) => find(
                    one.split.is_some() && *split != one.split,
                    format!("it says the same as {first}"),
                ),
                None => {
                    texts.insert(text, (&one.place, one.split));
                }
            }
        }
    }
    findings
}

/// Refuses a task with the first finding that is fatal.
pub(super) fn refuse(findings: &[Finding]) -> Result<(), TaskError> {
    match findings.iter().find(|finding| finding.fatal) {
        Some(finding) => Err(TaskError::Item {
            place: finding.place.clone(),
            what: finding.what.clone(),
        }),
        None => Ok(()),
    }
}
