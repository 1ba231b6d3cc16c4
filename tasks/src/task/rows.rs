//! Rows of items files, whatever their format.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
};

use parquet::file::reader::SerializedFileReader;
use serde_json::{Map, Value};

use super::{Place, TaskError};

/// A longer line is no item.
const LONGEST_LINE: u64 = 16 << 20;

/// A row by column, and where it stands.
pub(super) type Row = (Place, Map<String, Value>);

/// Reads a file's rows one by one.
pub(super) fn read(
    path: &Path,
    name: &str,
    mut take: impl FnMut(Row) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let file = File::open(path).map_err(|error| TaskError::Io {
        path: path.display().to_string(),
        error,
    })?;
    let place = |line: usize| Place {
        file: name.to_owned(),
        line,
    };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("jsonl" | "json") => jsonl(file, place, take),
        Some("csv") => csv_rows(file, place, take),
        Some("parquet") => {
            let broken = |line: usize, error: parquet::errors::ParquetError| TaskError::Row {
                place: place(line),
                why: error.to_string(),
            };
            let reader = SerializedFileReader::new(file).map_err(|error| broken(0, error))?;
            for (index, row) in reader.into_iter().enumerate() {
                let row = row.map_err(|error| broken(index + 1, error))?;
                if let Value::Object(row) = row.to_json_value() {
                    take((place(index + 1), row))?;
                }
            }
            Ok(())
        }
        _ => Err(TaskError::Format {
            file: name.to_owned(),
        }),
    }
}

fn jsonl(
    file: File,
    place: impl Fn(usize) -> Place,
    mut take: impl FnMut(Row) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let wrong = |why: String| TaskError::Row {
            place: place(number),
            why,
        };
        let read = reader
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)
            .map_err(|error| wrong(error.to_string()))?;
        if read == 0 {
            return Ok(());
        }
        if read as u64 == LONGEST_LINE {
            return Err(wrong(format!("it is longer than {LONGEST_LINE} bytes")));
        }
        let text = std::str::from_utf8(&line)
            .map_err(|error| wrong(format!("byte {} is not UTF-8", error.valid_up_to())))?;
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            continue;
        }
        let row = serde_json::from_str(text).map_err(|error| {
            let ended = error.is_eof() && !line.ends_with(b"\n");
            wrong(if ended {
                "the file ends in the middle of it".to_owned()
            } else {
                format!("it is no JSON object: {error}")
            })
        })?;
        take((place(number), row))?;
    }
    Ok(())
}

fn csv_rows(
    file: File,
    place: impl Fn(usize) -> Place,
    mut take: impl FnMut(Row) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let mut reader = csv::Reader::from_reader(BufReader::new(file));
    let broken = |line: usize, error: csv::Error| TaskError::Row {
        place: place(line),
        why: error.to_string(),
    };
    let header = reader.headers().map_err(|error| broken(1, error))?.clone();
    for record in reader.records() {
        let line = |position: Option<&csv::Position>| {
            position.map_or(0, |position| position.line() as usize)
        };
        let record = record.map_err(|error| broken(line(error.position()), error))?;
        let cells = record.iter().map(|cell| Value::String(cell.to_owned()));
        let row = header.iter().map(str::to_owned).zip(cells).collect();
        take((place(line(record.position())), row))?;
    }
    Ok(())
}
