//! Checkpoints: written beside, made sure of, then named; verified by hash when they are read.
//!
//! A checkpoint is a folder named by its step. `SHA256SUMS` covers every other file, in the form that
//! `sha256sum -c` reads; a folder in which anything differs is damaged, and the one before is used.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{TrainError, files};

const SUMS: &str = "SHA256SUMS";
const STATE: &str = "state.json";

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    kept: usize,
}

/// A checkpoint that can be used.
#[derive(Debug)]
pub struct Found<T> {
    /// Its folder.
    pub folder: PathBuf,
    /// Its state.
    pub state: T,
    /// Newer ones that are damaged: the folder's name, and what is wrong.
    pub damaged: Vec<(String, String)>,
}

impl Checkpoints {
    /// Those in this folder, of which the newest `kept` stay, two at least: one to fall back to.
    ///
    /// # Errors
    /// When the folder can't be made.
    pub fn open(folder: &Path, kept: usize) -> Result<Self, TrainError> {
        fs::create_dir_all(folder).map_err(TrainError::io(folder))?;
        Ok(Self {
            folder: folder.to_owned(),
            kept: kept.max(2),
        })
    }

    /// Writes a checkpoint: `fill` puts files into the folder that it is given.
    ///
    /// # Errors
    /// When it can't be written. Then there is none of this step.
    pub fn write(
        &self,
        step: u64,
        state: &impl Serialize,
        fill: impl FnOnce(&Path) -> Result<(), TrainError>,
    ) -> Result<PathBuf, TrainError> {
        let named = self.folder.join(format!("{step:06}"));
        let beside = self.folder.join(format!(".{step:06}.part"));
        remove(&beside)?;
        fs::create_dir(&beside).map_err(TrainError::io(&beside))?;
        fill(&beside)?;
        let json = serde_json::to_vec_pretty(state)
            .map_err(|error| TrainError::format(&beside.join(STATE), error))?;
        fs::write(beside.join(STATE), json).map_err(TrainError::io(&beside))?;
        let sums: String = hashes(&beside)?
            .into_iter()
            .map(|(name, hash)| format!("{hash}  {name}\n"))
            .collect();
        fs::write(beside.join(SUMS), sums).map_err(TrainError::io(&beside))?;
        sync_all(&beside)?;
        // One of the same step is of a run that was stopped right after it, or it is damaged.
        remove(&named)?;
        fs::rename(&beside, &named).map_err(TrainError::io(&named))?;
        files::sync_folder(&self.folder)?;
        self.clean(step)?;
        Ok(named)
    }

    /// The newest that is whole; none where there are none at all.
    ///
    /// # Errors
    /// When there are some and none can be used.
    pub fn newest<T: DeserializeOwned>(&self) -> Result<Option<Found<T>>, TrainError> {
        let mut names = self.names()?;
        let count = names.len();
        let mut damaged = Vec::new();
        while let Some(name) = names.pop() {
            let folder = self.folder.join(&name);
            match read(&folder) {
                Ok(state) => {
                    return Ok(Some(Found {
                        folder,
                        state,
                        damaged,
                    }));
                }
                Err(why) => damaged.push((name, why)),
            }
        }
        match damaged.into_iter().next() {
            None => Ok(None),
            Some((name, why)) => Err(TrainError::NoCheckpoint {
                path: self.folder.display().to_string(),
                count,
                newest: format!("`{name}`: {why}"),
            }),
        }
    }

    /// Ascending.
    fn names(&self) -> Result<Vec<String>, TrainError> {
        let io = || TrainError::io(&self.folder);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(io())? {
            let name = entry
                .map_err(io())?
                .file_name()
                .to_string_lossy()
                .into_owned();
            if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
                names.push(name);
            }
        }
        names.sort_by_key(|name| name.parse::<u64>().unwrap_or(u64::MAX));
        Ok(names)
    }

    /// Removes those before the newest few.
    fn clean(&self, step: u64) -> Result<(), TrainError> {
        let names = self.names()?;
        let before: Vec<&String> = names
            .iter()
            .filter(|name| name.parse::<u64>().is_ok_and(|number| number <= step))
            .collect();
        for name in before.iter().take(before.len().saturating_sub(self.kept)) {
            remove(&self.folder.join(name))?;
        }
        Ok(())
    }
}

fn remove(folder: &Path) -> Result<(), TrainError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TrainError::io(folder)(error))
        }
        _ => Ok(()),
    }
}

/// Every file but the sums, by its path in the folder.
fn hashes(folder: &Path) -> Result<BTreeMap<String, String>, TrainError> {
    let mut found = BTreeMap::new();
    visit(folder, &mut |path| {
        let name = path
            .strip_prefix(folder)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned();
        if name != SUMS {
            found.insert(name, files::hash(path)?);
        }
        Ok(())
    })?;
    Ok(found)
}

fn visit(
    folder: &Path,
    work: &mut dyn FnMut(&Path) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    for entry in fs::read_dir(folder).map_err(TrainError::io(folder))? {
        let path = entry.map_err(TrainError::io(folder))?.path();
        if path.is_dir() {
            visit(&path, work)?;
        } else {
            work(&path)?;
        }
    }
    Ok(())
}

/// Makes sure that a folder's files and names are on the disk.
fn sync_all(folder: &Path) -> Result<(), TrainError> {
    for entry in fs::read_dir(folder).map_err(TrainError::io(folder))? {
        let path = entry.map_err(TrainError::io(folder))?.path();
        if path.is_dir() {
            sync_all(&path)?;
        } else {
            let file = File::open(&path).map_err(TrainError::io(&path))?;
            file.sync_all().map_err(TrainError::io(&path))?;
        }
    }
    files::sync_folder(folder)
}

/// The state of a checkpoint in which every file is as it was written.
fn read<T: DeserializeOwned>(folder: &Path) -> Result<T, String> {
    let text =
        fs::read_to_string(folder.join(SUMS)).map_err(|error| format!("`{SUMS}`: {error}"))?;
    let mut expected = BTreeMap::new();
    for line in text.lines() {
        let (hash, name) = line
            .split_once("  ")
            .ok_or_else(|| format!("`{SUMS}` is damaged"))?;
        expected.insert(name.to_owned(), hash.to_owned());
    }
    let found = hashes(folder).map_err(|error| error.to_string())?;
    let names = expected.keys().chain(found.keys());
    if let Some(name) = names
        .into_iter()
        .find(|name| expected.get(*name) != found.get(*name))
    {
        return Err(match (expected.get(name), found.get(name)) {
            (Some(_), None) => format!("`{name}` is missing"),
            (None, _) => format!("`{name}` is not in `{SUMS}`"),
            _ => format!("`{name}` is not what was written"),
        });
    }
    let json = fs::read(folder.join(STATE)).map_err(|error| format!("`{STATE}`: {error}"))?;
    serde_json::from_slice(&json).map_err(|error| format!("`{STATE}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(checkpoints: &Checkpoints, step: u64) {
        checkpoints
            .write(step, &step, |folder| {
                fs::create_dir(folder.join("adapter")).unwrap();
                fs::write(folder.join("adapter/weights"), format!("of {step}")).unwrap();
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn the_newest_is_found_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path(), 2).unwrap();
        assert!(checkpoints.newest::<u64>().unwrap().is_none());
        for step in [8, 9, 10] {
            write(&checkpoints, step);
        }
        assert_eq!(checkpoints.names().unwrap(), ["000009", "000010"]);
        let found = checkpoints.newest::<u64>().unwrap().unwrap();
        assert_eq!((found.state, found.damaged.len()), (10, 0));
        assert!(found.folder.join("adapter/weights").exists());
    }

    /// Damages the newest of two in a way, and expects the one before with this reason.
    fn check_damage(damage: fn(&Path), expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path(), 3).unwrap();
        write(&checkpoints, 1);
        write(&checkpoints, 2);
        damage(&folder.path().join("000002"));
        let found = checkpoints.newest::<u64>().unwrap().unwrap();
        assert_eq!(found.state, 1);
        assert_eq!(found.damaged[0].0, "000002");
        assert!(found.damaged[0].1.contains(expected), "{:?}", found.damaged);
        fs::write(folder.path().join("000001").join(STATE), "2").unwrap();
        let error = checkpoints.newest::<u64>().unwrap_err().to_string();
        assert!(error.contains("none of the 2 checkpoints"), "{error}");
        // It is written anew.
        write(&checkpoints, 2);
        assert_eq!(checkpoints.newest::<u64>().unwrap().unwrap().state, 2);
    }

    #[test]
    fn a_damaged_one_falls_back_to_the_one_before() {
        check_damage(
            |path| fs::write(path.join("adapter/weights"), "of").unwrap(),
            "`adapter/weights` is not what was written",
        );
        check_damage(
            |path| fs::remove_file(path.join(STATE)).unwrap(),
            "`state.json` is missing",
        );
        check_damage(
            |path| fs::write(path.join(SUMS), "a").unwrap(),
            "is damaged",
        );
        check_damage(
            |path| fs::remove_file(path.join(SUMS)).unwrap(),
            "`SHA256SUMS`: No such file",
        );
        check_damage(
            |path| fs::write(path.join("more"), "").unwrap(),
            "`more` is not in `SHA256SUMS`",
        );
    }

    #[test]
    fn what_was_stopped_in_the_middle_is_no_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path(), 3).unwrap();
        write(&checkpoints, 1);
        let failed = checkpoints.write(2, &2, |_| Err(TrainError::format(Path::new("x"), "no")));
        assert!(failed.is_err());
        assert_eq!(checkpoints.newest::<u64>().unwrap().unwrap().state, 1);
        write(&checkpoints, 2);
        assert_eq!(checkpoints.newest::<u64>().unwrap().unwrap().state, 2);
    }
}
