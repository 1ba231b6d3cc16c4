//! The record of who opened a task's test split, and when.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::json;
use whale_optimizer::evaluate::Header;

use crate::{context, failure::Failure, printer};

const FILE: &str = "openings.jsonl";

/// Writes an opening down, and says how many there were.
pub(super) fn record(task: &Path, header: &Header) -> Result<(), Failure> {
    let path = task.join(FILE);
    let before = fs::read_to_string(&path).map_or(0, |text| text.lines().count());
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let line = json!({
        "time": time, "harness": header.harness, "model": header.model, "items": header.items,
        "k": header.k, "seed": header.seed,
    });
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|error| context::unreadable(&path, error))?;
    file.write_all(format!("{line}\n").as_bytes())
        .and_then(|()| file.sync_data())
        .map_err(|error| context::unreadable(&path, error))?;
    if before > 0 {
        printer::error(&format!(
            "the test split was opened {before} {} before: choices that were made after looking at it \
             are not tested by it",
            if before == 1 { "time" } else { "times" }
        ));
    }
    Ok(())
}
