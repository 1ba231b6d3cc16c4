//! What other trainers read: a data set of token ids.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
};

use serde::Serialize;

use crate::{TrainError, data::Sequence};

/// The label of a token that carries no loss, as PyTorch's cross-entropy has it.
const IGNORED: i64 = -100;

/// A line of the data set.
#[derive(Serialize)]
struct Row<'a> {
    item: &'a str,
    rollout: u32,
    input_ids: &'a [u32],
    /// The ids that carry loss, at their own places; [`IGNORED`] elsewhere.
    labels: Vec<i64>,
    /// What the sampler said of the labelled ids, where it tells.
    log_probabilities: &'a [f32],
}

/// Writes sequences as JSON, one a line, with `input_ids` and `labels` as trainers of the Hugging
/// Face family read them: labels lie at their own tokens' places, not one before.
///
/// # Errors
/// When the file can't be written.
pub fn dataset(path: &Path, sequences: &[Sequence]) -> Result<(), TrainError> {
    let file = File::create(path).map_err(TrainError::io(path))?;
    let mut out = BufWriter::new(file);
    for sequence in sequences {
        let tokens = &sequence.supervised.tokens;
        let mut labels = vec![IGNORED; tokens.len()];
        for position in &sequence.supervised.chosen {
            labels[*position] = i64::from(tokens[*position]);
        }
        let row = Row {
            item: &sequence.item,
            rollout: sequence.rollout,
            input_ids: tokens,
            labels,
            log_probabilities: &sequence.log_probabilities,
        };
        serde_json::to_writer(&mut out, &row).map_err(|error| TrainError::format(path, error))?;
        out.write_all(b"\n").map_err(TrainError::io(path))?;
    }
    let file = out
        .into_inner()
        .map_err(|error| TrainError::io(path)(error.into_error()))?;
    file.sync_all().map_err(TrainError::io(path))
}
