//! A task: a folder with `task.toml`, items, and splits that are made once.

mod check;
mod error;
mod items;
mod rows;
mod settings;
mod split;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use check::Finding;
pub use error::TaskError;
pub use items::{Item, Reference, References};
pub use settings::{Columns, FILE, SearchSettings, Settings, SplitSettings};
pub use split::Split;

use items::{Loaded, Reader};

/// The file that keeps a task's splits what they are.
pub const LOCK: &str = "splits.lock";

/// Where an item stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    pub file: String,
    /// Counted from 1; a row's number where a file has no lines.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of `{}`", self.line, self.file)
    }
}

/// A task that is ready to be used.
#[derive(Debug)]
pub struct Task {
    /// What it is.
    pub settings: Settings,
    /// Its folder.
    pub folder: PathBuf,
    /// The references, apart from the items.
    pub references: References,
    /// Of the splits: it changes when any item changes its split.
    pub digest: String,
    /// Of the settings and the items' files: it changes when any prompt or reference does.
    pub content: String,
    splits: BTreeMap<Split, Vec<Item>>,
}

/// What keeps splits what they are.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Lock {
    digest: String,
    sizes: BTreeMap<Split, usize>,
}

impl Task {
    /// Opens a task: reads its items, checks them, and shares them out as its lock says, or makes
    /// the lock.
    ///
    /// # Errors
    /// When something can't be read, an item is wrong, a split can't be filled, or the splits are
    /// not those of the lock.
    pub fn open(folder: &Path) -> Result<Self, TaskError> {
        let settings = Settings::read(folder)?;
        let loaded = load(folder, &settings)?;
        check::refuse(&check::findings(&loaded, &settings))?;
        let mut clusters: BTreeMap<String, usize> = BTreeMap::new();
        let mut given = HashMap::new();
        for one in &loaded {
            *clusters.entry(one.item.cluster.clone()).or_default() += 1;
            if let Some(split) = one.split {
                given.insert(one.item.cluster.clone(), split);
            }
        }
        let assigned = split::assign(&clusters, &given, &settings.splits)?;
        let mut task = Self {
            folder: folder.to_owned(),
            references: References::default(),
            digest: String::new(),
            content: content(folder, &settings)?,
            splits: BTreeMap::new(),
            settings,
        };
        for one in loaded {
            let Ok(reference) = one.reference else {
                continue;
            };
            if let Some(split) = assigned.get(&one.item.cluster) {
                task.references.insert(one.item.id.clone(), reference);
                task.splits.entry(*split).or_default().push(one.item);
            }
        }
        task.digest = digest(&task.splits);
        task.lock()?;
        Ok(task)
    }

    /// Everything that is wrong with a task's items.
    ///
    /// # Errors
    /// When the settings or the items can't be read at all.
    pub fn check(folder: &Path) -> Result<(Settings, usize, Vec<Finding>), TaskError> {
        let settings = Settings::read(folder)?;
        let loaded = load(folder, &settings)?;
        let findings = check::findings(&loaded, &settings);
        Ok((settings, loaded.len(), findings))
    }

    /// The items of a split, in the order of the files.
    ///
    /// # Errors
    /// When there are none.
    pub fn split(&self, split: Split) -> Result<&[Item], TaskError> {
        match self.splits.get(&split) {
            Some(items) if !items.is_empty() => Ok(items),
            _ => Err(TaskError::Empty {
                task: self.settings.name.clone(),
                split,
            }),
        }
    }

    /// How many items each split has.
    #[must_use]
    pub fn sizes(&self) -> BTreeMap<Split, usize> {
        let size = |split| self.splits.get(&split).map_or(0, Vec::len);
        Split::ALL.map(|split| (split, size(split))).into()
    }

    /// Compares with the lock, or makes it.
    fn lock(&self) -> Result<(), TaskError> {
        let path = self.folder.join(LOCK);
        let ours = Lock {
            digest: self.digest.clone(),
            sizes: self.sizes(),
        };
        let failed = |error| TaskError::Io {
            path: path.display().to_string(),
            error,
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let theirs: Lock = toml::from_str(&text).map_err(|error| TaskError::Settings {
                    path: path.display().to_string(),
                    why: error.to_string().trim().to_owned(),
                })?;
                if theirs == ours {
                    Ok(())
                } else {
                    Err(TaskError::Moved {
                        path: path.display().to_string(),
                        sizes: shown(&theirs.sizes),
                        now: shown(&ours.sizes),
                    })
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let sizes = ours.sizes.iter();
                let sizes = sizes.map(|(split, size)| format!("{split} = {size}\n"));
                let text = format!(
                    "# Which item is in which split must stay as it is, or results can't be compared.\n\
                     digest = \"{}\"\n\n[sizes]\n{}",
                    ours.digest,
                    sizes.collect::<String>()
                );
                match std::fs::write(&path, text) {
                    // A task that can't be written to does not change either.
                    Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
                    Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem => Ok(()),
                    written => written.map_err(failed),
                }
            }
            Err(error) => Err(failed(error)),
        }
    }
}

fn shown(sizes: &BTreeMap<Split, usize>) -> String {
    let sizes = sizes.iter().map(|(split, size)| format!("{split} {size}"));
    sizes.collect::<Vec<_>>().join(", ")
}

fn load(folder: &Path, settings: &Settings) -> Result<Vec<Loaded>, TaskError> {
    let reader = Reader::new(settings);
    let mut loaded = Vec::new();
    for name in &settings.items {
        rows::read(&folder.join(name), name, |row| {
            loaded.push(reader.item(row)?);
            Ok(())
        })?;
    }
    if loaded.is_empty() {
        return Err(TaskError::NoItems {
            task: settings.name.clone(),
        });
    }
    Ok(loaded)
}

fn content(folder: &Path, settings: &Settings) -> Result<String, TaskError> {
    let mut hasher = Sha256::new();
    hasher.update(serde_json::to_vec(settings).unwrap_or_default());
    for name in &settings.items {
        let path = folder.join(name);
        std::fs::File::open(&path)
            .and_then(|mut file| std::io::copy(&mut file, &mut hasher))
            .map_err(|error| TaskError::Io {
                path: path.display().to_string(),
                error,
            })?;
    }
    Ok(format!("{:x}", hasher.finalize()))
}

fn digest(splits: &BTreeMap<Split, Vec<Item>>) -> String {
    let mut lines: Vec<String> = splits
        .iter()
        .flat_map(|(split, items)| {
            items
                .iter()
                .map(move |item| format!("{split} {}\n", item.id))
        })
        .collect();
    lines.sort();
    format!("{:x}", Sha256::digest(lines.concat()))
}
