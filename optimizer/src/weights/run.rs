//! A run's folder: what it was begun with, and where things lie in it.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use whale_runtime::Digest;
use whale_trainer::{TrainError, write_whole};

use super::{RunSettings, WeightsError};

/// What fixes the results of a run beside its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Identity {
    /// The hash of the model's files.
    pub model: String,
    /// What tells its tokenizer from others.
    pub tokenizer: String,
    /// The harness's digest.
    pub harness: String,
    /// The digest of the task's settings and items.
    pub task: String,
    /// The digest of its splits.
    pub splits: String,
}

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// As long as it is there, no other process writes into the folder.
    _lock: Arc<File>,
}

/// The first file of a run's folder: all settings, and what they led to.
pub const FILE: &str = "whale.toml";

/// Settings that change no result, and may change while a run is stopped.
const FREE: [&str; 4] = [
    "phase.checkpoints",
    "rollouts.jobs",
    "train.command-seconds",
    "train.parity",
];

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Begun {
    /// The SHA-256 of the resolved settings.
    settings_hash: String,
    identity: Identity,
    settings: RunSettings,
}

impl RunFolder {
    /// Begins a run in a folder, or goes on with the one that is there.
    ///
    /// # Errors
    /// When the folder can't be used, or belongs to a run with other settings, another model,
    /// harness or task.
    pub fn open(
        path: &Path,
        settings: &RunSettings,
        identity: &Identity,
    ) -> Result<Self, WeightsError> {
        let rollouts = path.join("rollouts");
        fs::create_dir_all(&rollouts).map_err(io(&rollouts))?;
        let run = Self {
            path: path.to_owned(),
            _lock: Arc::new(lock(path)?),
        };
        let file = run.path.join(FILE);
        let begun = Begun {
            settings_hash: hash(settings),
            identity: identity.clone(),
            settings: settings.clone(),
        };
        if file.exists() {
            let theirs = read(&file)?;
            run.check(&theirs, settings, identity)?;
            if theirs.settings_hash == begun.settings_hash {
                return Ok(run);
            }
        }
        let text = toml::to_string(&begun).map_err(|error| format_error(&file, &error))?;
        write_whole(&file, text.as_bytes())?;
        Ok(run)
    }

    /// The settings that a run was begun with.
    ///
    /// # Errors
    /// When the folder is none of a run.
    pub fn settings(path: &Path) -> Result<RunSettings, WeightsError> {
        Ok(read(&path.join(FILE))?.settings)
    }

    fn check(
        &self,
        theirs: &Begun,
        settings: &RunSettings,
        identity: &Identity,
    ) -> Result<(), WeightsError> {
        self.same("", &theirs.settings, settings, &FREE)?;
        self.check_identity(&theirs.identity, identity)
    }

    /// Refuses what was begun with something else.
    pub(super) fn check_identity(
        &self,
        theirs: &Identity,
        ours: &Identity,
    ) -> Result<(), WeightsError> {
        self.same("identity", theirs, ours, &[])
    }

    /// Names the first thing in which two tables differ.
    fn same<T: Serialize>(
        &self,
        name: &str,
        theirs: &T,
        ours: &T,
        free: &[&str],
    ) -> Result<(), WeightsError> {
        let flat = |table: &T| {
            let mut all = BTreeMap::new();
            flatten(
                name,
                &serde_json::to_value(table).unwrap_or_default(),
                &mut all,
            );
            all
        };
        let (there, here) = (flat(theirs), flat(ours));
        let mut names = there.keys().chain(here.keys());
        let differs =
            |name: &&String| !free.contains(&name.as_str()) && there.get(*name) != here.get(*name);
        let Some(other) = names.find(differs) else {
            return Ok(());
        };
        let text = |all: &BTreeMap<String, String>| {
            all.get(other)
                .cloned()
                .unwrap_or_else(|| "not set".to_owned())
        };
        Err(WeightsError::OtherRun {
            path: self.path.display().to_string(),
            what: format!("`{other}`"),
            theirs: text(&there),
            ours: text(&here),
        })
    }

    /// The trajectories of a step.
    #[must_use]
    pub fn rollouts(&self, step: u64) -> PathBuf {
        self.path.join("rollouts").join(format!("{step:06}.jsonl"))
    }

    /// The checkpoints.
    #[must_use]
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// One row a step.
    #[must_use]
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// TensorBoard's files.
    #[must_use]
    pub fn events(&self) -> PathBuf {
        self.path.join("tensorboard")
    }

    /// What a training command is given and gives back.
    #[must_use]
    pub fn updates(&self) -> PathBuf {
        self.path.join("updates")
    }

    /// What was learned: a PEFT adapter, or a model of its own where all weights were trained.
    #[must_use]
    pub fn learned(&self) -> PathBuf {
        self.path.join("learned")
    }

    /// Puts it there, whole or not at all.
    pub(super) fn leave<T>(
        &self,
        fill: impl FnOnce(&Path) -> Result<T, TrainError>,
    ) -> Result<(), WeightsError> {
        let beside = self.path.join(".learned.part");
        let remove = |folder: &Path| match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io(folder)(error)),
            _ => Ok(()),
        };
        remove(&beside)?;
        fill(&beside)?;
        remove(&self.learned())?;
        fs::rename(&beside, self.learned()).map_err(io(&self.learned()))
    }

    /// What is handed over, for as long as that takes.
    #[must_use]
    pub fn handed(&self) -> PathBuf {
        self.path.join(".handed")
    }
}

/// Tables as names with dots.
fn flatten(prefix: &str, value: &serde_json::Value, all: &mut BTreeMap<String, String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let name = if prefix.is_empty() {
                    name.clone()
                } else {
                    format!("{prefix}.{name}")
                };
                flatten(&name, value, all);
            }
        }
        serde_json::Value::Null => {}
        plain => {
            all.insert(prefix.to_owned(), plain.to_string());
        }
    }
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> WeightsError {
    let path = path.display().to_string();
    move |error| TrainError::Io { path, error }.into()
}

fn format_error(path: &Path, error: &dyn std::fmt::Display) -> WeightsError {
    TrainError::Format {
        path: path.display().to_string(),
        line: None,
        message: error.to_string(),
    }
    .into()
}

fn hash(settings: &RunSettings) -> String {
    let json = serde_json::to_vec(settings).unwrap_or_default();
    Digest::of(&json).as_str().to_owned()
}

fn lock(folder: &Path) -> Result<File, WeightsError> {
    let path = folder.join(".lock");
    let file = File::create(&path).map_err(io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(WeightsError::Busy {
            path: folder.display().to_string(),
        }),
        Err(TryLockError::Error(error)) => Err(io(&path)(error)),
    }
}

fn read(file: &Path) -> Result<Begun, WeightsError> {
    let text = fs::read_to_string(file).map_err(io(file))?;
    let begun: Begun = toml::from_str(&text).map_err(|error| format_error(file, &error))?;
    if hash(&begun.settings) != begun.settings_hash {
        let edited = "its settings are not those that it was written with";
        return Err(format_error(file, &edited));
    }
    Ok(begun)
}
