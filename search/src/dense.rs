//! Passages by what they are about: a vector for each, and how its ranking joins that by words.

use std::{
    cmp::Ordering,
    collections::HashMap,
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tantivy::DocAddress;

use crate::{
    Encoder, SearchError,
    encoder::{identity, nearness},
};

/// The vectors, one after another in the order of the documents, as 32-bit numbers.
const FILE: &str = "vectors.f32";
/// How little the first places count against the next (Cormack et al., 2009, have 60; with two
/// rankings of which one is better, less is better).
const SMOOTH: f64 = 10.0;
/// Texts that are encoded at once.
const BATCH: usize = 256;

/// What an index keeps of its encoder.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    /// Its folder.
    pub(crate) encoder: PathBuf,
    /// Of its weights.
    pub(crate) sha256: String,
}

/// Vectors of all passages, and the encoder for queries.
pub(crate) struct Dense {
    encoder: Encoder,
    vectors: Vec<f32>,
}

impl Dense {
    /// Encodes passages and writes their vectors.
    pub(crate) fn build(
        encoder: &Path,
        texts: &[String],
        folder: &Path,
    ) -> Result<About, SearchError> {
        let opened = Encoder::open(encoder)?;
        let (place, sha256) = identity(encoder)?;
        let path = folder.join(FILE);
        let io = |error| SearchError::Io {
            path: path.display().to_string(),
            error,
        };
        let mut file = BufWriter::new(File::create(&path).map_err(io)?);
        for batch in texts.chunks(BATCH) {
            let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
            for number in opened.encode(&batch)?.into_iter().flatten() {
                file.write_all(&number.to_le_bytes()).map_err(io)?;
            }
        }
        file.flush().map_err(io)?;
        Ok(About {
            encoder: place,
            sha256,
        })
    }

    /// Opens the vectors of so many passages, and the encoder that made them.
    pub(crate) fn open(about: &About, folder: &Path, passages: u64) -> Result<Self, SearchError> {
        let no_index = |why: String| SearchError::NoIndex {
            path: folder.display().to_string(),
            why,
        };
        let (_, found) = identity(&about.encoder)?;
        if found != about.sha256 {
            let encoder = about.encoder.display();
            return Err(no_index(format!(
                "its encoder `{encoder}` is another than when it was built"
            )));
        }
        let encoder = Encoder::open(&about.encoder)?;
        let bytes = std::fs::read(folder.join(FILE))
            .map_err(|error| no_index(format!("`{FILE}`: {error}")))?;
        let expected = passages as usize * encoder.width() * size_of::<f32>();
        if bytes.len() != expected {
            return Err(no_index(format!(
                "`{FILE}` has {} bytes, not {expected}",
                bytes.len()
            )));
        }
        let (numbers, _) = bytes.as_chunks::<4>();
        Ok(Self {
            encoder,
            vectors: numbers
                .iter()
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect(),
        })
    }

    /// The `k` nearest passages, nearest first.
    pub(crate) fn nearest(&self, text: &str, k: usize) -> Result<Vec<DocAddress>, SearchError> {
        let query = self.encoder.encode(&[text])?;
        let query = query.first().map_or(&[][..], Vec::as_slice);
        let rows = self.vectors.chunks_exact(self.encoder.width());
        let mut near: Vec<(f32, u32)> = rows.map(|row| nearness(row, query)).zip(0..).collect();
        let order = |a: &(f32, u32), b: &(f32, u32)| -> Ordering {
            b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
        };
        if near.len() > k && k > 0 {
            near.select_nth_unstable_by(k - 1, order);
        }
        near.truncate(k);
        near.sort_by(order);
        Ok(near
            .into_iter()
            .map(|(_, row)| DocAddress::new(0, row))
            .collect())
    }
}

/// The `k` best of two rankings by reciprocal rank.
pub(crate) fn joined(a: &[DocAddress], b: &[DocAddress], k: usize) -> Vec<(DocAddress, f64)> {
    let mut scores: HashMap<DocAddress, f64> = HashMap::new();
    for ranking in [a, b] {
        for (place, address) in ranking.iter().enumerate() {
            *scores.entry(*address).or_default() += 1.0 / (SMOOTH + place as f64 + 1.0);
        }
    }
    let mut ranked: Vec<(DocAddress, f64)> = scores.into_iter().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    ranked.truncate(k);
    ranked
}
