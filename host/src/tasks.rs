//! `--task`: from what a user writes to a task.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use whale_tasks::{
    data::{DataSet, SETS},
    task::{FILE, Split, Task, TaskError},
};

use crate::{context::Context, failure::Failure};

impl Context {
    /// The folder of tasks that were made from data sets.
    pub(crate) fn tasks(&self) -> PathBuf {
        self.folder.join("tasks")
    }
}

/// The folder of a task: a path, or a name in the cache.
pub(crate) fn folder(context: &Context, name: &str) -> Result<PathBuf, Failure> {
    let written = Path::new(name);
    if written.join(FILE).exists() {
        return Ok(written.to_owned());
    }
    let is_name = written.components().count() == 1 && !name.starts_with('.');
    let known = context.tasks().join(name);
    if is_name && known.join(FILE).exists() {
        return Ok(known);
    }
    let missing = Failure::user(anyhow!("there is no task `{name}`"));
    Err(match DataSet::named(name) {
        Some(_) => missing.hint(format!("`whale-host data pull {name}` makes it")),
        None => missing.hint(format!(
            "a task is a folder with `{FILE}`, or one of `{}` after `whale-host data pull`",
            SETS.map(|set| set.name).join("`, `")
        )),
    })
}

pub(crate) fn open(context: &Context, name: &str) -> Result<Task, Failure> {
    Task::open(&folder(context, name)?).map_err(failure)
}

pub(crate) fn split(name: &str) -> Result<Split, Failure> {
    Split::parse(name).ok_or_else(|| {
        Failure::user(anyhow!("`{name}` is no split")).hint(format!("splits are {}", Split::NAMES))
    })
}

pub(crate) fn failure(error: TaskError) -> Failure {
    let hint = match &error {
        TaskError::Io { .. } => None,
        TaskError::TooFew { .. } => {
            Some("set smaller sizes under `[splits]` in `task.toml`, or add items".to_owned())
        }
        TaskError::Moved { path, .. } => Some(format!(
            "results under other splits can't be compared; remove `{path}` to begin anew"
        )),
        TaskError::Column { .. } => {
            Some("`[columns]` in `task.toml` says which column is what".to_owned())
        }
        TaskError::Empty { .. } => {
            Some("`[splits]` in `task.toml` sets the sizes of the splits".to_owned())
        }
        TaskError::Row { .. } => {
            Some("an items file has one JSON object a line, in UTF-8".to_owned())
        }
        TaskError::Settings { .. } | TaskError::Format { .. } | TaskError::NoItems { .. } => {
            Some("docs/tasks.md explains what a task's folder holds".to_owned())
        }
        TaskError::Item { .. } => {
            Some("`whale-host task check FOLDER` lists everything that is wrong".to_owned())
        }
    };
    let failure = Failure::user(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
