//! `task.toml`.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use super::TaskError;
use crate::grade::Grader;

/// The name of the file.
pub const FILE: &str = "task.toml";

/// What a task is. Unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// What reports call it.
    pub name: String,
    /// `math`, `searchqa`, `chess`, or a word of one's own.
    pub domain: String,
    /// Where the items come from, and their licence; for people.
    #[serde(default)]
    pub source: String,
    /// Files in the task's folder: `.jsonl`, `.csv` or `.parquet`.
    pub items: Vec<String>,
    /// Which columns mean what; by default, those of common data sets.
    #[serde(default)]
    pub columns: Columns,
    /// How answers are graded.
    pub grader: Grader,
    /// How items are shared out.
    #[serde(default)]
    pub splits: SplitSettings,
    /// Limits of episodes, as `--limit` takes them.
    #[serde(default)]
    pub limits: BTreeMap<String, String>,
    /// What `search` finds, if anything.
    #[serde(default)]
    pub search: Option<SearchSettings>,
    /// Whether the code executor is offered.
    #[serde(default = "yes")]
    pub code: bool,
    /// The longest prompt, in bytes.
    #[serde(default = "longest_prompt")]
    pub longest_prompt: usize,
}

fn yes() -> bool {
    true
}

fn longest_prompt() -> usize {
    64 << 10
}

/// Names of columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Columns {
    /// The item's name.
    pub id: Option<String>,
    /// What the harness is asked.
    pub prompt: Option<String>,
    /// The reference: a text, a number, or a list of texts.
    pub answer: Option<String>,
    /// What items that are not independent have in common.
    pub cluster: Option<String>,
    /// The split that an item belongs to, where that is given.
    pub split: Option<String>,
    /// Further texts that the harness sees.
    #[serde(default)]
    pub fields: Vec<String>,
}

/// How items are shared out. Items whose split is given by a column keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SplitSettings {
    /// Fixes who goes where.
    pub seed: u64,
    /// How many items; whole clusters, so that there may be a few more.
    pub search: usize,
    /// How many items.
    pub confirm: usize,
    /// How many items.
    pub test: usize,
    /// At most so many; by default, all that are left.
    pub weights: Option<usize>,
}

impl Default for SplitSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            search: 256,
            confirm: 512,
            test: 256,
            weights: None,
        }
    }
}

/// What `search` finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SearchSettings {
    /// An index that `index build` made, in the task's folder.
    pub index: Option<String>,
    /// A retrieval server that speaks Search-R1's protocol, instead.
    pub url: Option<String>,
}

impl Settings {
    /// Reads a task's settings.
    ///
    /// # Errors
    /// When the file can't be read, or a setting is unknown, missing or impossible.
    pub fn read(folder: &Path) -> Result<Self, TaskError> {
        let path = folder.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|error| TaskError::Io {
            path: path.display().to_string(),
            error,
        })?;
        let settings: Self = toml::from_str(&text).map_err(|error| TaskError::Settings {
            path: path.display().to_string(),
            why: error.to_string().trim().to_owned(),
        })?;
        let wrong = |why: &str| {
            Err(TaskError::Settings {
                path: path.display().to_string(),
                why: why.to_owned(),
            })
        };
        if settings.items.is_empty() {
            return wrong("`items` names no file");
        }
        if let Some(search) = &settings.search
            && search.index.is_some() == search.url.is_some()
        {
            return wrong("`search` wants either `index` or `url`");
        }
        Ok(settings)
    }
}
