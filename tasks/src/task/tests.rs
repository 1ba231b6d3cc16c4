//! Folders that are tasks, and folders that are not.

use std::fs;

use super::*;

const SETTINGS: &str = r#"
name = "t"
domain = "math"
items = ["items.jsonl"]
[grader]
kind = "math"
[splits]
search = 2
confirm = 2
test = 2
"#;

/// A folder with these files; `task.toml` is there in any case.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(FILE), SETTINGS).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn items(count: usize) -> String {
    let item = |i| {
        format!(
            "{{\"id\": \"q{i}\", \"question\": \"What is {i} + 1?\", \"answer\": \"{}\"}}\n",
            i + 1
        )
    };
    (0..count).map(item).collect()
}

#[track_caller]
fn refused(files: &[(&str, &str)], says: &str) {
    let folder = folder(files);
    let error = Task::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
    assert!(!folder.path().join(LOCK).exists());
}

#[test]
fn items_are_shared_out_once_and_stay_where_they_are() {
    let folder = folder(&[("items.jsonl", &items(20))]);
    let task = Task::open(folder.path()).unwrap();
    let sizes: Vec<usize> = task.sizes().into_values().collect();
    assert_eq!(sizes, [14, 2, 2, 2]);
    assert_eq!(Task::open(folder.path()).unwrap().digest, task.digest);
    // One item more, and some items would move.
    fs::write(folder.path().join("items.jsonl"), items(21)).unwrap();
    let error = Task::open(folder.path()).unwrap_err();
    assert!(matches!(error, TaskError::Moved { .. }), "{error}");
}

#[test]
fn clusters_stay_together() {
    let rows: String = (0..40)
        .map(|i| {
            format!(
                "{{\"question\": \"q {i}\", \"answer\": \"1\", \"passage\": \"p{}\"}}\n",
                i / 4
            )
        })
        .collect();
    let settings = SETTINGS.replace("[grader]", "[columns]\ncluster = \"passage\"\n[grader]");
    let folder = folder(&[(FILE, &settings), ("items.jsonl", &rows)]);
    let task = Task::open(folder.path()).unwrap();
    let mut seen = HashMap::new();
    for split in Split::ALL {
        for item in task.split(split).unwrap() {
            assert_eq!(*seen.entry(item.cluster.clone()).or_insert(split), split);
        }
    }
    assert_eq!(seen.len(), 10);
}

#[test]
fn a_reference_is_apart_from_its_item_and_never_printed() {
    let rows = "{\"question\": \"What?\", \"answer\": \"the-secret\"}\n".to_owned() + &items(10);
    let folder = folder(&[("items.jsonl", &rows)]);
    let task = Task::open(folder.path()).unwrap();
    assert!(!format!("{task:?}").contains("the-secret"));
    let all = Split::ALL
        .iter()
        .flat_map(|split| task.split(*split).unwrap());
    assert!(all.clone().any(|item| item.prompt == "What?"));
    for item in all {
        assert!(task.references.of(&item.id).is_some());
    }
}

#[test]
fn common_shapes_are_read_without_settings() {
    for row in [
        "{\"question\": \"a N\", \"answer\": [\"1\", \"2\"]}",
        "{\"problem\": \"a N\", \"solution\": \"\\\\boxed{1}\"}",
        "{\"prompt\": \"a N\", \"completion\": \"1\"}",
        "{\"question\": \"a N\", \"answers\": {\"text\": [\"1\"], \"answer_start\": [0]}}",
        "{\"question\": \"a N\", \"answer\": 1.0}",
    ] {
        let rows: String = (0..9)
            .map(|i| row.replace('N', &i.to_string()) + "\n")
            .collect();
        let folder = folder(&[("items.jsonl", &rows)]);
        let task = Task::open(folder.path()).unwrap();
        let item = &task.split(Split::Search).unwrap()[0];
        let Some(Reference::Answers(answers)) = task.references.of(&item.id) else {
            panic!("{row}");
        };
        assert!(
            ["1", "\\boxed{1}"].contains(&answers[0].as_str()),
            "{answers:?}"
        );
    }
}

#[test]
fn parquet_and_csv_are_read() {
    use parquet::{
        data_type::{ByteArray, ByteArrayType},
        file::{properties::WriterProperties, writer::SerializedFileWriter},
        schema::parser::parse_message_type,
    };

    let folder = folder(&[]);
    let schema =
        "message m { REQUIRED BYTE_ARRAY question (UTF8); REQUIRED BYTE_ARRAY answer (UTF8); }";
    let schema = std::sync::Arc::new(parse_message_type(schema).unwrap());
    let properties = std::sync::Arc::new(WriterProperties::builder().build());
    let file = fs::File::create(folder.path().join("items.parquet")).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for text in ["question", "answer"] {
        let values: Vec<ByteArray> = (0..8)
            .map(|i| ByteArray::from(format!("{text} {i}").into_bytes()))
            .collect();
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<ByteArrayType>()
            .write_batch(&values, None, None)
            .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    let rows: String = (8..12)
        .map(|i| format!("\"question, {i}\",{i}\n"))
        .collect();
    fs::write(
        folder.path().join("items.csv"),
        format!("question,answer\n{rows}"),
    )
    .unwrap();
    let settings = SETTINGS.replace("items.jsonl\"", "items.parquet\", \"items.csv\"");
    fs::write(folder.path().join(FILE), settings).unwrap();
    let task = Task::open(folder.path()).unwrap();
    assert_eq!(task.sizes().values().sum::<usize>(), 12);
    fs::write(folder.path().join("items.parquet"), "PAR1 but not really").unwrap();
    assert!(Task::open(folder.path()).is_err());
}

#[test]
fn wrong_items_say_where_they_stand() {
    let good = items(8);
    let with = |row: &str| format!("{good}{row}\n");
    let check = |row: &str, says: &str| refused(&[("items.jsonl", &with(row))], says);
    check(
        "{\"id\": \"q1\", \"question\": \"new\", \"answer\": \"1\"}",
        "line 9 of `items.jsonl`: the id `q1` stands at line 2",
    );
    check(
        "{\"question\": \"new\"}",
        "line 9 of `items.jsonl`: it has no reference answer",
    );
    check(
        "{\"question\": \" \", \"answer\": \"1\"}",
        "its prompt is empty",
    );
    check(
        "{\"text\": \"new\", \"answer\": \"1\"}",
        "has no column `question`, which would be its prompt; it has `text`, `answer`",
    );
    check("[1]", "it is no JSON object");
    let long = "x".repeat(70_000);
    check(
        &format!("{{\"question\": \"{long}\", \"answer\": \"1\"}}"),
        "`longest-prompt` allows 65536",
    );
    refused(
        &[("items.jsonl", &format!("{good}{{\"question\": \"ha"))],
        "the file ends in the middle of it",
    );
    refused(&[("items.jsonl", "\n")], "has no items");
    refused(
        &[("items.jsonl", &items(3))],
        "wants 2 items and 1 are left",
    );
    refused(&[], "items.jsonl");
    let folder = folder(&[]);
    fs::write(
        folder.path().join("items.jsonl"),
        b"{\"question\": \"\xff\"}\n",
    )
    .unwrap();
    let error = Task::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("byte 14 is not UTF-8"), "{error}");
}

#[test]
fn wrong_settings_are_named() {
    let with = |text: String| refused(&[(FILE, &text), ("items.jsonl", &items(8))], "task.toml");
    with(SETTINGS.replace("domain", "domian"));
    with(SETTINGS.replace("\"math\"\n[splits]", "\"maths\"\n[splits]"));
    with(SETTINGS.replace("items = [\"items.jsonl\"]", "items = []"));
    with(format!("{SETTINGS}\n[search]\n"));
    let check = |column: &str, says: &str| {
        let text = SETTINGS.replace("[grader]", &format!("[columns]\n{column}\n[grader]"));
        refused(&[(FILE, &text), ("items.jsonl", &items(8))], says);
    };
    check(
        "prompt = \"text\"",
        "no column `text`, which would be its prompt",
    );
    check("fields = [\"passage\"]", "no column `passage`");
}

#[test]
fn given_splits_are_kept_and_may_not_overlap() {
    let row = |i: usize, split: &str| {
        format!("{{\"question\": \"q {i}\", \"answer\": \"1\", \"s\": \"{split}\"}}\n")
    };
    let settings = SETTINGS.replace("[grader]", "[columns]\nsplit = \"s\"\n[grader]");
    let rows: String = (0..8)
        .map(|i| row(i, ["train", "search", "confirm", "test"][i % 4]))
        .collect();
    let folder = folder(&[(FILE, &settings), ("items.jsonl", &rows)]);
    let task = Task::open(folder.path()).unwrap();
    assert!(task.sizes().values().all(|size| *size == 2));
    let overlap = rows.clone() + &row(0, "test");
    refused(
        &[(FILE, &settings), ("items.jsonl", &overlap)],
        "is in `weights`",
    );
    refused(
        &[(FILE, &settings), ("items.jsonl", &row(0, "dev"))],
        "`dev` is no split",
    );
    let only: String = (0..8).map(|i| row(i, "train")).collect();
    refused(
        &[(FILE, &settings), ("items.jsonl", &only)],
        "the split `test` wants 2 items",
    );
}

#[test]
fn checks_find_what_is_suspicious() {
    let rows = "{\"question\": \"Is Paris the capital?\", \"answer\": \"Paris\"}\n\
                {\"question\": \"What is 1+1?\", \"answer\": \"2\"}\n\
                {\"question\": \"what is  1+1\", \"answer\": \"2\"}\n";
    let folder = folder(&[("items.jsonl", rows)]);
    let (_, count, findings) = Task::check(folder.path()).unwrap();
    assert_eq!(count, 3);
    let said: Vec<String> = findings
        .iter()
        .map(|f| format!("{}: {}", f.place.line, f.what))
        .collect();
    assert_eq!(
        said,
        [
            "1: its answer stands in its own prompt",
            "3: it says the same as line 2 of `items.jsonl`"
        ]
    );
    assert!(findings.iter().all(|finding| !finding.fatal));
}
