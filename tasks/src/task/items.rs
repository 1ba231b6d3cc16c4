//! From rows to items and their references.

use std::collections::HashMap;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::{Place, Settings, Split, TaskError, rows::Row};
use crate::{
    chess::Puzzle,
    grade::{Grader, normalized},
};

/// What an episode is about. Nothing here tells the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name in the data set. A guest never sees it.
    pub id: String,
    /// What the harness is asked.
    pub prompt: String,
    /// Further texts by name.
    pub fields: Vec<(String, String)>,
    /// What items that are not independent have in common. A guest never sees it.
    pub cluster: String,
}

/// An item's reference. It is kept apart from the item, so that code that makes what a guest sees
/// can't reach it; and it is never printed.
#[derive(Clone)]
pub enum Reference {
    /// Answers, of which any may be met.
    Answers(Vec<String>),
    /// A puzzle's line.
    Line(Puzzle),
}

impl std::fmt::Debug for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reference(…)")
    }
}

/// All references, by item.
#[derive(Clone, Debug, Default)]
pub struct References(HashMap<String, Reference>);

impl References {
    /// The reference of the item with this id.
    #[must_use]
    pub fn of(&self, id: &str) -> Option<&Reference> {
        self.0.get(id)
    }

    pub(super) fn insert(&mut self, id: String, reference: Reference) {
        self.0.insert(id, reference);
    }
}

/// An item as it was read.
pub(super) struct Loaded {
    pub(super) item: Item,
    pub(super) reference: Result<Reference, String>,
    /// The split that the data gives.
    pub(super) split: Option<Split>,
    pub(super) place: Place,
}

/// The prompt of a puzzle; the position is the environment's to show.
const SOLVE: &str = "Solve this chess puzzle: find the best move at every turn.";

/// Turns rows into items.
pub(super) struct Reader<'a> {
    settings: &'a Settings,
}

impl<'a> Reader<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        Self { settings }
    }

    pub(super) fn item(&self, (place, row): Row) -> Result<Loaded, TaskError> {
        let columns = &self.settings.columns;
        let column = |set: &Option<String>, meaning: &'static str, usual: &[&str]| match set {
            Some(name) if row.contains_key(name) => Ok(Some(name.clone())),
            Some(name) => Err(unknown(&place, &row, name, meaning)),
            None => Ok(usual
                .iter()
                .find(|name| row.contains_key(**name))
                .map(|name| (*name).to_owned())),
        };
        let split = match column(&columns.split, "split", &[])? {
            Some(name) => Some(self.split(&place, &text(&row[&name]))?),
            None => None,
        };
        let id = column(&columns.id, "id", &["id", "ID", "_id", "PuzzleId"])?;
        let id = id.map_or_else(
            || format!("{}:{}", place.file, place.line),
            |name| text(&row[&name]),
        );
        if matches!(self.settings.grader, Grader::Chess { .. }) {
            return self.puzzle(place, &row, id, split);
        }
        let prompt = column(
            &columns.prompt,
            "prompt",
            &["question", "problem", "prompt"],
        )?;
        let prompt = prompt
            .ok_or_else(|| unknown(&place, &row, "question", "prompt"))
            .map(|name| text(&row[&name]))?;
        let usual = ["answer", "answers", "solution", "completion"];
        let answer = column(&columns.answer, "answer", &usual)?;
        let answers = answer.map_or_else(Vec::new, |name| texts(&row[&name]));
        let reference = if answers.iter().all(|answer| answer.trim().is_empty()) {
            Err("it has no reference answer".to_owned())
        } else {
            Ok(Reference::Answers(answers))
        };
        let cluster = match column(&columns.cluster, "cluster", &[])? {
            Some(name) => text(&row[&name]),
            // Items that say the same are the same.
            None => format!("{:x}", Sha256::digest(normalized(&prompt)))[..16].to_owned(),
        };
        let mut fields = Vec::new();
        for name in &columns.fields {
            let value = row.get(name).map(text);
            let value = value.ok_or_else(|| unknown(&place, &row, name, "fields"))?;
            fields.push((name.clone(), value));
        }
        Ok(Loaded {
            item: Item {
                id,
                prompt,
                fields,
                cluster,
            },
            reference,
            split,
            place,
        })
    }

    /// A row of the Lichess database. Puzzles of one game are not independent.
    fn puzzle(
        &self,
        place: Place,
        row: &Map<String, Value>,
        id: String,
        split: Option<Split>,
    ) -> Result<Loaded, TaskError> {
        let named = |name: &str| {
            let value = row.get(name).map(text);
            value.ok_or_else(|| unknown(&place, row, name, "puzzle"))
        };
        let (fen, moves) = (named("FEN")?, named("Moves")?);
        let reference = Puzzle::new(&fen, &moves).map_err(|error| error.to_string());
        let cluster = self
            .settings
            .columns
            .cluster
            .as_deref()
            .unwrap_or("GameUrl");
        let cluster = row.get(cluster).map_or_else(|| id.clone(), text);
        let game = cluster.split('#').next().unwrap_or_default();
        let game = game.trim_end_matches("/black").to_owned();
        Ok(Loaded {
            item: Item {
                id,
                prompt: SOLVE.to_owned(),
                fields: Vec::new(),
                cluster: game,
            },
            reference: reference.map(Reference::Line),
            split,
            place,
        })
    }

    fn split(&self, place: &Place, name: &str) -> Result<Split, TaskError> {
        Split::parse(name).ok_or_else(|| TaskError::Row {
            place: place.clone(),
            why: format!("`{name}` is no split; they are {}", Split::NAMES),
        })
    }
}

fn unknown(
    place: &Place,
    row: &Map<String, Value>,
    name: &str,
    meaning: &'static str,
) -> TaskError {
    TaskError::Column {
        place: place.clone(),
        name: name.to_owned(),
        meaning,
        known: row.keys().cloned().collect::<Vec<_>>().join("`, `"),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        // `145.0` is how some files write 145.
        Value::Number(number) => {
            let text = number.to_string();
            text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
        }
        other => other.to_string(),
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(all) => all.iter().flat_map(texts).collect(),
        // SQuAD's shape.
        Value::Object(object) if object.contains_key("text") => texts(&object["text"]),
        value => vec![text(value)],
    }
}
