//! GSM8K, MATH-500, SVAMP.

use std::path::Path;

use serde_json::json;

use super::{
    DataError, Prepared, Source, Wanted,
    prepare::{lines, objects, settings, text},
};

const GSM8K: &str = "gsm8k_test.jsonl";
const MATH500: &str = "math500_test.jsonl";
const SVAMP: &str = "svamp_test.jsonl";

pub(super) const SOURCES: [Source; 3] = [
    Source {
        file: GSM8K,
        address: "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data/test.jsonl",
        sha256: Some("3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"),
        licence: "MIT",
        optional: false,
    },
    Source {
        file: MATH500,
        address: "https://huggingface.co/datasets/HuggingFaceH4/MATH-500/resolve/main/test.jsonl",
        sha256: Some("35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132"),
        licence: "MIT",
        optional: false,
    },
    Source {
        file: SVAMP,
        address: "https://huggingface.co/datasets/ChilleD/SVAMP/resolve/main/test.json",
        sha256: None,
        licence: "MIT",
        optional: true,
    },
];

const SETTINGS: &str = r#"# Made by `whale-host data pull math`.
name = "math"
domain = "math"
source = "GSM8K (openai/grade-school-math), MATH-500 (hendrycks/math), SVAMP; each under MIT"
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
test = 700
"#;

pub(super) fn make(raw: &Path, task: &Path, wanted: &Wanted) -> Result<Prepared, DataError> {
    let mut items = Vec::new();
    let mut counts = Vec::new();
    for (file, set) in [(GSM8K, "gsm8k"), (MATH500, "math500"), (SVAMP, "svamp")] {
        let path = raw.join(file);
        if !path.exists() && set == "svamp" {
            continue;
        }
        let before = items.len();
        for (index, object) in objects(&path)?.iter().enumerate() {
            let place = format!("item {}", index + 1);
            let field = |name: &str| text(&path, &place, object, name);
            let (question, answer) = match set {
                "gsm8k" => (field("question")?, field("answer")?),
                "math500" => (field("problem")?, field("answer")?),
                _ => {
                    let (body, question) = (field("Body")?, field("Question")?);
                    (format!("{} {question}", body.trim()), field("Answer")?)
                }
            };
            // Of GSM8K's solutions, only the last line is the answer.
            let answer = answer.rsplit("####").next().unwrap_or_default().trim();
            items.push(json!({
                "id": format!("{set}-{index}"), "question": question, "answer": answer, "set": set,
            }));
        }
        counts.push((set.to_owned(), items.len() - before));
    }
    if let Some(most) = wanted.items {
        items.truncate(most);
    }
    lines(&task.join("items.jsonl"), &items)?;
    settings(task, SETTINGS)?;
    Ok(Prepared {
        items: counts,
        passages: 0,
    })
}
