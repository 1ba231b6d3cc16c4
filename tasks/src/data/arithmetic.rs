//! Generated problems of arithmetic and algebra, so that a small model has a slope to climb.

use std::path::Path;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::{
    DataError, Prepared, Wanted,
    prepare::{lines, settings},
};

/// Items, by default.
const ITEMS: usize = 4000;

const SETTINGS: &str = r#"# Made by `whale-host data pull arithmetic`.
name = "arithmetic"
domain = "math"
source = "generated: ten levels of arithmetic and algebra"
items = ["items.jsonl"]

[columns]
id = "id"
prompt = "question"
answer = "answer"

[grader]
kind = "math"

# Of one episode, as published. `whale-host limits` lists all.
[limits]
completion-tokens = "8192"

[splits]
seed = 0
search = 256
confirm = 512
test = 256
"#;

const NAMES: [&str; 8] = ["Ann", "Ben", "Eva", "Leo", "Mia", "Noah", "Sara", "Tom"];
const THINGS: [&str; 8] = [
    "apples", "books", "cards", "coins", "eggs", "marbles", "pencils", "shells",
];

/// Makes a problem and its answer.
type Level = fn(&mut ChaCha8Rng) -> (String, i64);

/// Ten levels, from one digit to equations.
const LEVELS: [Level; 10] = [
    |r| {
        let (a, b) = (r.random_range(1..10), r.random_range(1..10));
        (format!("What is {a} + {b}?"), a + b)
    },
    |r| {
        let (a, b) = (r.random_range(5..20), r.random_range(1..10));
        (format!("What is {a} - {b}?"), a - b)
    },
    |r| {
        let (a, b) = (r.random_range(10..100), r.random_range(1..10));
        (format!("What is {a} + {b}?"), a + b)
    },
    |r| {
        let (a, b) = (r.random_range(2..10), r.random_range(2..10));
        (format!("What is {a} times {b}?"), a * b)
    },
    |r| {
        let (name, things) = (NAMES[r.random_range(0..8)], THINGS[r.random_range(0..8)]);
        let (a, b) = (r.random_range(2..20), r.random_range(2..20));
        (
            format!(
                "{name} has {a} {things} and gets {b} more. How many {things} does {name} have now?"
            ),
            a + b,
        )
    },
    |r| {
        let (a, b) = (r.random_range(10..100), r.random_range(10..100));
        (format!("What is {a} + {b}?"), a + b)
    },
    |r| {
        let (name, things) = (NAMES[r.random_range(0..8)], THINGS[r.random_range(0..8)]);
        let (a, b) = (r.random_range(2..10), r.random_range(2..10));
        let c = r.random_range(1..a * b);
        (
            format!(
                "{name} buys {a} boxes with {b} {things} in each and gives {c} {things} away. How many \
                 {things} are left?"
            ),
            a * b - c,
        )
    },
    |r| {
        let (a, b, c) = (
            r.random_range(2..10),
            r.random_range(2..10),
            r.random_range(2..20),
        );
        (format!("What is {a} * {b} + {c}?"), a * b + c)
    },
    |r| {
        let (a, x, b) = (
            r.random_range(2..10),
            r.random_range(2..13),
            r.random_range(1..20),
        );
        (format!("Solve for x: {a}x + {b} = {}", a * x + b), x)
    },
    |r| {
        let (a, b) = (r.random_range(11..100), r.random_range(11..100));
        (format!("What is {a} times {b}?"), a * b)
    },
];

pub(super) fn make(_raw: &Path, task: &Path, wanted: &Wanted) -> Result<Prepared, DataError> {
    let mut random = ChaCha8Rng::seed_from_u64(wanted.seed);
    let mut items = Vec::new();
    let mut counts = [0usize; LEVELS.len()];
    let mut known = std::collections::HashSet::new();
    let most = wanted.items.unwrap_or(ITEMS);
    // The low levels have few problems; what was drawn already is drawn again elsewhere.
    let mut level = 0;
    for _ in 0..most * 20 {
        if items.len() == most {
            break;
        }
        let (question, answer) = LEVELS[level](&mut random);
        if known.insert(question.clone()) {
            items.push(json!({
                "id": format!("l{}-{}", level + 1, counts[level]),
                "question": question,
                "answer": answer.to_string(),
                "level": level + 1,
            }));
            counts[level] += 1;
        }
        level = (level + 1) % LEVELS.len();
    }
    lines(&task.join("items.jsonl"), &items)?;
    settings(task, SETTINGS)?;
    let counts = counts.iter().enumerate();
    Ok(Prepared {
        items: counts
            .map(|(level, count)| (format!("level {}", level + 1), *count))
            .collect(),
        passages: 0,
    })
}
