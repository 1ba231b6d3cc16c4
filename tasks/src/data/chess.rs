//! Puzzles of the Lichess database.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use sha2::{Digest as _, Sha256};

use super::{
    DataError, Prepared, Source, Wanted,
    prepare::{io, settings, wrong},
};
use crate::chess::Puzzle;

const PUZZLES: &str = "lichess_puzzles_cc0.csv";
/// Puzzles that are drawn from a larger database.
const DRAWN: usize = 20_000;
/// Moves of the solver, as published.
const LONGEST: usize = 9;

pub(super) const SOURCES: [Source; 1] = [Source {
    file: PUZZLES,
    // The publisher adds to it every month.
    address: "https://database.lichess.org/lichess_db_puzzle.csv.zst",
    sha256: None,
    licence: "CC0",
    optional: false,
}];

const SETTINGS: &str = r#"# Made by `whale-host data pull chess`.
name = "chess"
domain = "chess"
source = "the Lichess puzzle database (database.lichess.org), CC0"
items = ["items.csv"]
code = false

[columns]
id = "PuzzleId"
# Puzzles from one game are not independent.
cluster = "GameUrl"

# `paper = true` accepts only the line's own moves; else any checkmate solves a puzzle, too.
[grader]
kind = "chess"

# Of one episode, as published. `whale-host limits` lists all.
[limits]
completion-tokens = "16384"

[splits]
seed = 0
search = 256
confirm = 512
test = 256
"#;

/// Draws puzzles by the hash of their names, so that the draw does not change as the database grows
/// but by what is new.
pub(super) fn make(raw: &Path, task: &Path, wanted: &Wanted) -> Result<Prepared, DataError> {
    let path = raw.join(PUZZLES);
    let file = File::open(&path).map_err(|error| io(&path, error))?;
    let mut reader = csv::Reader::from_reader(plain(&path, file)?);
    let broken = |error: csv::Error| wrong(&path, "a row", &error);
    let header = reader.headers().map_err(broken)?.clone();
    let column = |name: &str| {
        let found = header.iter().position(|column| column == name);
        found.ok_or_else(|| {
            wrong(
                &path,
                "the first line",
                &format!("there is no column `{name}`"),
            )
        })
    };
    let (id, fen, moves) = (column("PuzzleId")?, column("FEN")?, column("Moves")?);
    let most = wanted.items.unwrap_or(DRAWN);
    let mut drawn: BTreeMap<Vec<u8>, csv::StringRecord> = BTreeMap::new();
    for record in reader.records() {
        let record = record.map_err(broken)?;
        let key = Sha256::new()
            .chain_update(wanted.seed.to_le_bytes())
            .chain_update(&record[id])
            .finalize();
        if drawn.len() == most
            && drawn
                .last_key_value()
                .is_some_and(|(last, _)| **last < *key)
        {
            continue;
        }
        let solvable = Puzzle::new(&record[fen], &record[moves]);
        if !solvable.is_ok_and(|puzzle| puzzle.solver_moves() <= LONGEST) {
            continue;
        }
        drawn.insert(key.to_vec(), record);
        if drawn.len() > most {
            drawn.pop_last();
        }
    }
    let items = task.join("items.csv");
    let mut writer =
        csv::Writer::from_path(&items).map_err(|error| wrong(&items, "the file", &error))?;
    let unwritten = |error: csv::Error| wrong(&items, "a row", &error);
    writer.write_record(&header).map_err(unwritten)?;
    for record in drawn.values() {
        writer.write_record(record).map_err(unwritten)?;
    }
    writer.flush().map_err(|error| io(&items, error))?;
    settings(task, SETTINGS)?;
    Ok(Prepared {
        items: vec![("lichess".to_owned(), drawn.len())],
        passages: 0,
    })
}

/// The text of a file that may be compressed.
fn plain(path: &Path, file: File) -> Result<Box<dyn Read>, DataError> {
    let mut head = [0; 4];
    let compressed = {
        let mut begin = File::open(path).map_err(|error| io(path, error))?;
        begin.read_exact(&mut head).is_ok() && head == [0x28, 0xb5, 0x2f, 0xfd]
    };
    let reader = BufReader::new(file);
    Ok(if compressed {
        Box::new(zstd::Decoder::new(reader).map_err(|error| io(path, error))?)
    } else {
        Box::new(reader)
    })
}
