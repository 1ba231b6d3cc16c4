//! Data sets from small files in their formats.

use std::fs;

use super::*;
use crate::task::{Split, Task};

fn made(name: &str, files: &[(&str, &str)], wanted: &Wanted) -> (tempfile::TempDir, Prepared) {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    fs::create_dir(&raw).unwrap();
    for (file, text) in files {
        fs::write(raw.join(file), text).unwrap();
    }
    let prepared = DataSet::named(name)
        .unwrap()
        .make(&raw, folder.path(), wanted)
        .unwrap();
    (folder, prepared)
}

#[test]
fn generated_problems_are_the_same_for_a_seed_and_fill_all_splits() {
    let wanted = Wanted::default();
    let (folder, prepared) = made("arithmetic", &[], &wanted);
    let (again, _) = made("arithmetic", &[], &wanted);
    let read = |folder: &Path| fs::read(folder.join("items.jsonl")).unwrap();
    assert_eq!(read(folder.path()), read(again.path()));
    let (other, _) = made("arithmetic", &[], &Wanted { seed: 1, ..wanted });
    assert_ne!(read(folder.path()), read(other.path()));
    assert_eq!(prepared.items.len(), 10);
    assert_eq!(prepared.items.iter().map(|(_, n)| n).sum::<usize>(), 4000);
    let task = Task::open(folder.path()).unwrap();
    for split in Split::ALL {
        assert!(task.split(split).unwrap().len() >= 256);
    }
}

#[test]
fn sets_of_mathematics_become_one_task() {
    let files = [
        (
            "gsm8k_test.jsonl",
            "{\"question\": \"1 + 1?\", \"answer\": \"one and one\\n#### 2\"}\n",
        ),
        (
            "math500_test.jsonl",
            "{\"problem\": \"$x$?\", \"solution\": \"s\", \"answer\": \"\\\\frac12\"}\n",
        ),
        (
            "svamp_test.jsonl",
            "{\"Body\": \"Ann has 3 eggs.\", \"Question\": \"How many?\", \"Answer\": 3.0}\n",
        ),
    ];
    let (folder, prepared) = made("math", &files, &Wanted::default());
    let names: Vec<_> = prepared
        .items
        .iter()
        .map(|(name, n)| (name.as_str(), *n))
        .collect();
    assert_eq!(names, [("gsm8k", 1), ("math500", 1), ("svamp", 1)]);
    let items = fs::read_to_string(folder.path().join("items.jsonl")).unwrap();
    assert!(
        items.contains("\"answer\":\"2\"") && items.contains("\"answer\":\"3\""),
        "{items}"
    );
    assert!(items.contains("Ann has 3 eggs. How many?"));
}

#[test]
fn both_shapes_of_hotpotqa_are_read_and_passages_kept_once() {
    let long = "A sentence that is long enough to be a passage of its own, and then some more.";
    let xquad = format!(
        "{{\"data\": [{{\"title\": \"A_b\", \"paragraphs\": [{{\"context\": \"{long}\", \"qas\": \
         [{{\"id\": \"q\", \"question\": \"What?\", \"answers\": [{{\"text\": \"long\"}}]}}]}}]}}]}}"
    );
    let published = format!(
        "[{{\"_id\": \"h\", \"question\": \"Who?\", \"answer\": \"x\", \"context\": \
         [[\"T\", [\"{long}\"]], [\"U\", [\"Another: \", \"{long}\"]]]}}]"
    );
    let files = [
        ("xquad.en.json", xquad.as_str()),
        ("hotpotqa_distractor_100.json", published.as_str()),
    ];
    let (folder, prepared) = made("searchqa", &files, &Wanted::default());
    assert_eq!(prepared.passages, 2);
    let items = fs::read_to_string(folder.path().join("items.jsonl")).unwrap();
    assert!(
        items.contains("\"cluster\":\"A b\"") && items.contains("\"id\":\"h\""),
        "{items}"
    );
}

const PUZZLES: &str = "PuzzleId,FEN,Moves,Rating,Themes,GameUrl\n\
    0008Q,8/4R3/1p2P3/p4r2/P6p/1P3Pk1/4K3/8 w - - 1 64,e7f7 f5e5 e2f1 e5e6,1383,rookEndgame,https://lichess.org/MQSyb3KW#127\n\
    bad,8/8/8/8/8/8/8/8 w - - 0 1,e2e4 e7e5,1,x,y\n";

#[test]
fn puzzles_are_read_plain_and_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let set = DataSet::named("chess").unwrap();
    let file = folder.path().join(set.sources[0].file);
    for bytes in [
        PUZZLES.as_bytes().to_vec(),
        zstd::encode_all(PUZZLES.as_bytes(), 1).unwrap(),
    ] {
        fs::write(&file, bytes).unwrap();
        let prepared = set
            .make(folder.path(), folder.path(), &Wanted::default())
            .unwrap();
        assert_eq!(prepared.items, [("lichess".to_owned(), 1)]);
        let items = fs::read_to_string(folder.path().join("items.csv")).unwrap();
        assert!(items.contains("0008Q") && !items.contains("bad"), "{items}");
    }
}

#[test]
fn what_is_no_data_set_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, file: &str, text: &str, says: &str| {
        fs::write(folder.path().join(file), text).unwrap();
        let set = DataSet::named(name).unwrap();
        let error = set
            .make(folder.path(), folder.path(), &Wanted::default())
            .unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    };
    check(
        "math",
        "gsm8k_test.jsonl",
        "{\"question\": \"x\"",
        "line 1: ",
    );
    check(
        "math",
        "gsm8k_test.jsonl",
        "{\"question\": \"x\"}\n",
        "item 1: it has no `answer`",
    );
    check(
        "searchqa",
        "xquad.en.json",
        "{}",
        "`data`: there is no list",
    );
    check(
        "chess",
        "lichess_puzzles_cc0.csv",
        "a,b\n1,2\n",
        "no column `PuzzleId`",
    );
}
