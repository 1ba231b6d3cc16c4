//! XQuAD's English questions and HotpotQA, over the passages of both.

use std::{collections::HashMap, path::Path};

use serde_json::{Value, json};

use super::{
    DataError, Prepared, Source, Wanted,
    prepare::{document, lines, objects, settings, text, wrong},
};

const XQUAD: &str = "xquad.en.json";
const HOTPOT: &str = "hotpotqa_distractor_100.json";
const KILT: &str = "kilt_sample_100.jsonl";
/// A shorter paragraph says nothing.
const SHORTEST: usize = 60;

pub(super) const SOURCES: [Source; 3] = [
    Source {
        file: XQUAD,
        address: "https://raw.githubusercontent.com/google-deepmind/xquad/master/xquad.en.json",
        sha256: Some("e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29"),
        licence: "CC BY-SA 4.0",
        optional: false,
    },
    Source {
        file: HOTPOT,
        address: "http://curtis.ml.cmu.edu/datasets/hotpot/hotpot_dev_distractor_v1.json",
        sha256: None,
        licence: "CC BY-SA 4.0",
        optional: true,
    },
    Source {
        file: KILT,
        address: "",
        sha256: None,
        licence: "CC BY-SA 3.0",
        optional: true,
    },
];

const SETTINGS: &str = r#"# Made by `whale-host data pull searchqa`.
name = "searchqa"
domain = "searchqa"
source = "XQuAD English, HotpotQA (distractor), Wikipedia pages of KILT; each under CC BY-SA"
items = ["items.jsonl"]
code = false

[columns]
id = "id"
prompt = "question"
answer = "answers"
# Questions about one article are not independent.
cluster = "cluster"

# `judge = true` lets a language model accept what exact match does not: see `--judge`.
[grader]
kind = "qa"

# Of one episode, as published. `whale-host limits` lists all.
[limits]
completion-tokens = "8192"

[splits]
seed = 0
search = 256
confirm = 256
test = 256

[search]
index = "index"
"#;

/// Passages, each once.
#[derive(Default)]
struct Passages {
    lines: Vec<Value>,
    known: HashMap<String, ()>,
}

impl Passages {
    fn add(&mut self, title: &str, text: &str) {
        let text = text.trim();
        if text.len() < SHORTEST || self.known.insert(text.to_owned(), ()).is_some() {
            return;
        }
        let id = format!("p{}", self.lines.len());
        self.lines
            .push(json!({ "id": id, "title": title, "text": text }));
    }
}

pub(super) fn make(raw: &Path, task: &Path, wanted: &Wanted) -> Result<Prepared, DataError> {
    let mut passages = Passages::default();
    let mut items = Vec::new();
    xquad(&raw.join(XQUAD), &mut items, &mut passages)?;
    let mut counts = vec![("xquad".to_owned(), items.len())];
    let path = raw.join(HOTPOT);
    if path.exists() {
        let before = items.len();
        hotpot(&path, &mut items, &mut passages)?;
        counts.push(("hotpotqa".to_owned(), items.len() - before));
    }
    let path = raw.join(KILT);
    if path.exists() {
        for (index, page) in objects(&path)?.iter().enumerate() {
            let title = text(
                &path,
                &format!("page {}", index + 1),
                page,
                "wikipedia_title",
            )?;
            for paragraph in page["text"].as_array().into_iter().flatten() {
                let paragraph = paragraph.as_str().unwrap_or_default();
                // Headings and lists are marked by the first word.
                if !paragraph.starts_with("Section::::") && !paragraph.starts_with("BULLET::::") {
                    passages.add(&title, paragraph);
                }
            }
        }
    }
    if let Some(most) = wanted.items {
        items.truncate(most);
    }
    lines(&task.join("items.jsonl"), &items)?;
    lines(&task.join("passages.jsonl"), &passages.lines)?;
    settings(task, SETTINGS)?;
    Ok(Prepared {
        items: counts,
        passages: passages.lines.len(),
    })
}

fn list<'a>(path: &Path, place: &str, value: &'a Value) -> Result<&'a Vec<Value>, DataError> {
    let found = value.as_array();
    found.ok_or_else(|| wrong(path, place, &"there is no list where one belongs"))
}

fn xquad(path: &Path, items: &mut Vec<Value>, passages: &mut Passages) -> Result<(), DataError> {
    let squad = document(path)?;
    for article in list(path, "`data`", &squad["data"])? {
        let title = text(path, "an article", article, "title")?.replace('_', " ");
        for paragraph in list(path, "`paragraphs`", &article["paragraphs"])? {
            let context = text(path, "a paragraph", paragraph, "context")?;
            passages.add(&title, &context);
            for question in list(path, "`qas`", &paragraph["qas"])? {
                let answers = list(path, "`answers`", &question["answers"])?;
                let answers = answers.iter().map(|answer| answer["text"].clone());
                items.push(json!({
                    "id": text(path, "a question", question, "id")?,
                    "question": text(path, "a question", question, "question")?,
                    "answers": answers.collect::<Vec<_>>(),
                    "cluster": title,
                }));
            }
        }
    }
    Ok(())
}

/// The published shape, `[title, [sentence, …]]`, or objects with `title` and `text`.
fn hotpot(path: &Path, items: &mut Vec<Value>, passages: &mut Passages) -> Result<(), DataError> {
    let questions = document(path)?;
    for (index, question) in list(path, "the document", &questions)?.iter().enumerate() {
        let place = format!("question {}", index + 1);
        for passage in list(path, &place, &question["context"])? {
            let sentences = |value: &Value| -> String {
                let sentences = value.as_array().into_iter().flatten();
                sentences.filter_map(Value::as_str).collect()
            };
            match passage {
                Value::Array(parts) if parts.len() == 2 => {
                    let title = parts[0].as_str().unwrap_or_default();
                    passages.add(title, &sentences(&parts[1]));
                }
                passage => {
                    let title = text(path, &place, passage, "title")?;
                    passages.add(&title, &text(path, &place, passage, "text")?);
                }
            }
        }
        let id =
            text(path, &place, question, "id").or_else(|_| text(path, &place, question, "_id"))?;
        items.push(json!({
            "question": text(path, &place, question, "question")?,
            "answers": [text(path, &place, question, "answer")?],
            "cluster": id,
            "id": id,
        }));
    }
    Ok(())
}
