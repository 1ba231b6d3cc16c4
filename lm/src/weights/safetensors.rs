//! A folder with `config.json` and one or several safetensors files.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo},
};
use serde::Deserialize;
use serde_json::Value;

use super::{Kind, Raw};
use crate::LmError;

/// The longest header that the format allows.
const LONGEST_HEADER: u64 = 100_000_000;
/// The longest JSON file that is read.
const LONGEST_JSON: u64 = 64 << 20;

pub(super) struct Safetensors {
    config: Value,
    tensors: BTreeMap<String, Place>,
    files: Vec<PathBuf>,
}

struct Place {
    file: usize,
    info: TensorInfo,
    /// Where the file's data begin.
    data: u64,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The prefixes under which checkpoints hold the language model.
const PREFIXES: [&str; 4] = [
    "",
    "model.language_model.",
    "language_model.model.",
    "language_model.",
];

impl Safetensors {
    pub(super) fn open(folder: &Path) -> Result<Self, LmError> {
        let mut config: Value = json(&folder.join("config.json"))?;
        // Models for text and pictures hold the text's configuration inside.
        if let Some(text) = config.get("text_config").cloned() {
            config = text;
        }
        let single = folder.join("model.safetensors");
        let files = if single.exists() {
            vec![single]
        } else {
            let index: Index = json(&folder.join("model.safetensors.index.json"))?;
            let mut names: Vec<&String> = index.weight_map.values().collect();
            names.sort_unstable();
            names.dedup();
            names
                .into_iter()
                .map(|name| inside(folder, name))
                .collect::<Result<_, _>>()?
        };
        let mut tensors = BTreeMap::new();
        for (file, path) in files.iter().enumerate() {
            for (name, info, data) in header(path)? {
                tensors.insert(name, Place { file, info, data });
            }
        }
        Ok(Self {
            config,
            tensors,
            files,
        })
    }

    pub(super) fn config(&self) -> &Value {
        &self.config
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    pub(super) fn inventory(&self) -> Vec<(String, Kind, usize)> {
        let known = self.tensors.iter().filter_map(|(name, place)| {
            Some((
                name.clone(),
                kind(place.info.dtype)?,
                place.info.shape.iter().product(),
            ))
        });
        known.collect()
    }

    fn place(&self, name: &str) -> Option<&Place> {
        let bare = name.strip_prefix("model.").unwrap_or(name);
        PREFIXES.iter().find_map(|prefix| {
            self.tensors
                .get(&format!("{prefix}{name}"))
                .or_else(|| self.tensors.get(&format!("{prefix}{bare}")))
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    pub(super) fn read(&self, name: &str) -> Result<Raw, LmError> {
        let place = self
            .place(name)
            .ok_or_else(|| LmError::Missing(name.to_owned()))?;
        let path = &self.files[place.file];
        let Some(kind) = kind(place.info.dtype) else {
            return Err(damaged(
                path,
                format!("`{name}` is stored as {:?}", place.info.dtype),
            ));
        };
        let (from, to) = place.info.data_offsets;
        let io = |error| LmError::Io {
            path: path.display().to_string(),
            error,
        };
        let mut file = File::open(path).map_err(io)?;
        file.seek(SeekFrom::Start(place.data + from as u64))
            .map_err(io)?;
        let mut bytes = vec![0; to - from];
        file.read_exact(&mut bytes).map_err(io)?;
        Ok(Raw {
            shape: place.info.shape.clone(),
            kind,
            bytes,
        })
    }
}

fn kind(dtype: Dtype) -> Option<Kind> {
    match dtype {
        Dtype::F32 => Some(Kind::F32),
        Dtype::F16 => Some(Kind::F16),
        Dtype::BF16 => Some(Kind::Bf16),
        _ => None,
    }
}

/// A file that an index names lies in the folder itself.
fn inside(folder: &Path, name: &str) -> Result<PathBuf, LmError> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(std::path::Component::Normal(name)), None) => Ok(folder.join(name)),
        _ => Err(damaged(
            folder,
            format!("its index names the file `{name}`"),
        )),
    }
}

/// The tensors of a file, checked against its length, and where their data begin.
pub(crate) fn header(path: &Path) -> Result<Vec<(String, TensorInfo, u64)>, LmError> {
    let io = |error| LmError::Io {
        path: path.display().to_string(),
        error,
    };
    let mut file = File::open(path).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length)
        .map_err(|_| damaged(path, "it is cut short".to_owned()))?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST_HEADER || length + 8 > size {
        return Err(damaged(
            path,
            format!("its header claims {length} bytes; the file has {size}"),
        ));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.read_exact(&mut bytes).map_err(io)?;
    let metadata: Metadata =
        serde_json::from_slice(&bytes).map_err(|error| damaged(path, error.to_string()))?;
    let data = 8 + length;
    let mut found = Vec::new();
    for (name, info) in metadata.tensors() {
        let (from, to) = info.data_offsets;
        if from > to || to as u64 > size - data {
            let at = format!("`{name}` ends at byte {to} of {}", size - data);
            return Err(damaged(path, format!("it is cut short: {at}")));
        }
        let numbers = info
            .shape
            .iter()
            .try_fold(1, |n: usize, dim| n.checked_mul(*dim));
        let bits = numbers.and_then(|numbers| numbers.checked_mul(info.dtype.bitsize()));
        if bits != (to - from).checked_mul(8) {
            let shape = format!("{:?} of {:?}", info.shape, info.dtype);
            return Err(damaged(
                path,
                format!("`{name}`, {shape}, has {} bytes", to - from),
            ));
        }
        found.push((name, info.clone(), data));
    }
    Ok(found)
}

/// A JSON file of a bounded size.
pub(crate) fn json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, LmError> {
    let io = |error| LmError::Io {
        path: path.display().to_string(),
        error,
    };
    let size = std::fs::metadata(path).map_err(io)?.len();
    if size > LONGEST_JSON {
        return Err(damaged(
            path,
            format!("it has {size} bytes; the limit is {LONGEST_JSON}"),
        ));
    }
    let bytes = std::fs::read(path).map_err(io)?;
    serde_json::from_slice(&bytes).map_err(|error| damaged(path, error.to_string()))
}

fn damaged(path: &Path, message: String) -> LmError {
    LmError::Format {
        path: path.display().to_string(),
        message,
    }
}
