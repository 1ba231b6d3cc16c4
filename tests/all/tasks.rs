//! Tasks, grades and indexes on the command line, and what is said of wrong ones.

use std::fs;

use crate::support::{check, say, whale, write};

const SETTINGS: &str = "name = \"t\"\ndomain = \"math\"\nitems = [\"items.jsonl\"]\n\
                        [grader]\nkind = \"math\"\n[splits]\nsearch = 2\nconfirm = 2\ntest = 2\n";

fn items(count: usize) -> String {
    let item = |i| format!("{{\"question\": \"What is {i}?\", \"answer\": \"{i}\"}}\n");
    (0..count).map(item).collect()
}

/// What `task check` says of these files.
fn checked(settings: &str, items: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("task.toml", settings)]);
    fs::write(folder.path().join("items.jsonl"), items).unwrap();
    say(folder.path(), &["task", "check", "."])
}

#[test]
fn tasks_are_checked() {
    check("task_good", &checked(SETTINGS, items(9).as_bytes()));
    let good = items(9);
    let with = |row: &str| checked(SETTINGS, format!("{good}{row}\n").as_bytes());
    check(
        "task_findings",
        &with(
            "{\"question\": \"Is it Paris?\", \"answer\": \"Paris\"}\n{\"question\": \"what IS 3\", \"answer\": \"3\"}\n{\"question\": \"new\"}",
        ),
    );
    check(
        "task_column",
        &with("{\"text\": \"new\", \"answer\": \"1\"}"),
    );
    check(
        "task_half_line",
        &checked(SETTINGS, format!("{good}{{\"question\": \"n").as_bytes()),
    );
    check(
        "task_encoding",
        &checked(
            SETTINGS,
            b"{\"question\": \"caf\xe9\", \"answer\": \"1\"}\n",
        ),
    );
    check(
        "task_unknown_key",
        &checked(&SETTINGS.replace("domain", "domian"), b""),
    );
    check("task_too_few", &checked(SETTINGS, items(3).as_bytes()));
    let given = SETTINGS.replace("[grader]", "[columns]\nsplit = \"s\"\n[grader]");
    let overlap = "{\"question\": \"a\", \"answer\": \"1\", \"s\": \"train\"}\n\
                   {\"question\": \"A!\", \"answer\": \"1\", \"s\": \"test\"}\n";
    check("task_overlap", &checked(&given, overlap.as_bytes()));
    let chess =
        "name = \"c\"\ndomain = \"chess\"\nitems = [\"items.csv\"]\n[grader]\nkind = \"chess\"\n";
    let folder = tempfile::tempdir().unwrap();
    let rows = "PuzzleId,FEN,Moves\np,8/8/8/8/8/8/8/8 w - - 0 1,e2e4 e7e5\n";
    write(folder.path(), &[("task.toml", chess), ("items.csv", rows)]);
    check(
        "task_illegal_position",
        &say(folder.path(), &["task", "check", "."]),
    );
    check(
        "task_missing",
        &say(folder.path(), &["task", "check", "nothing"]),
    );
}

#[test]
fn splits_do_not_move_unseen() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &[("task.toml", SETTINGS), ("items.jsonl", &items(9))],
    );
    let first = say(folder.path(), &["task", "check", "."]);
    assert!(
        first.contains("weights 3, search 2, confirm 2, test 2"),
        "{first}"
    );
    write(folder.path(), &[("items.jsonl", &items(12))]);
    check("task_moved", &say(folder.path(), &["task", "check", "."]));
}

#[test]
fn wrong_evaluations_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let settings = SETTINGS.replace("confirm = 2", "confirm = 0");
    write(
        folder,
        &[("t/task.toml", &settings), ("t/items.jsonl", &items(9))],
    );
    let eval = |more: &[&str]| say(folder, &[&["eval", "h.wasm", "--task", "t"], more].concat());
    check("eval_split", &eval(&["--split", "tset"]));
    check("eval_empty_split", &eval(&["--split", "confirm"]));
    check("eval_no_rollouts", &eval(&["--k", "0"]));
    check("eval_no_items", &eval(&["--limit", "0"]));
    check("eval_limit", &eval(&["--limit", "wal=3s"]));
    check("eval_price", &eval(&["--price", "much"]));
    check("eval_judge", &eval(&["--judge", "scripted:x"]));
    let task = ["eval", "h.wasm", "--task", "chess-endgames"];
    check("eval_no_task", &say(folder, &task));
    let elsewhere = tempfile::tempdir().unwrap();
    let known = whale(folder, &["eval", "h.wasm", "--task", "math"])
        .env("WHALE_CACHE", elsewhere.path())
        .output()
        .unwrap();
    check("eval_not_pulled", &crate::support::transcript(&known));
}

#[test]
fn answers_are_graded_with_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let grade = |task: &str, answer: &str, reference: &str, more: &[&str]| {
        let arguments = [
            "grade",
            "--task",
            task,
            "--answer",
            answer,
            "--reference",
            reference,
        ];
        say(folder.path(), &[&arguments, more].concat())
    };
    let half = r"\frac{1}{2}";
    check("grade_right", &grade("math", r"So \boxed{0.5}", half, &[]));
    check(
        "grade_earlier_box",
        &grade("math", r"\boxed{0.5} or \boxed{0.6}", half, &[]),
    );
    check(
        "grade_strict",
        &grade("math", r"\boxed{0.5}", half, &["--strict"]),
    );
    check("grade_negative", &grade("math", "-3", "-3", &["--json"]));
    check("grade_tower", &grade("math", "9^9^9^9", "1", &[]));
    check(
        "grade_qa",
        &grade("searchqa", "the Eiffel tower!", "Eiffel Tower", &[]),
    );
    check("grade_chess", &grade("chess", "e2e4", "e2e4", &[]));
    check("grade_unknown", &grade("physics", "1", "1", &[]));
    let long = "1".repeat(100_000);
    check("grade_long", &grade("math", &long, "1", &[]));
}

#[test]
fn passages_are_indexed_and_found() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let passages = "{\"id\": \"a\", \"title\": \"Rhine\", \"text\": \"The Rhine rises in the Alps.\"}\n\
                    {\"id\": 2, \"contents\": \"\\\"Hamlet\\\"\\nA play by \\u001b[31mShakespeare.\"}\n";
    write(
        folder,
        &[
            ("p.jsonl", passages),
            ("half.jsonl", "{\"text\": \"x"),
            ("none.jsonl", ""),
        ],
    );
    let build = |more: &[&str]| say(folder, &[&["index", "build"], more].concat());
    let built = build(&["p.jsonl", "-o", "idx"]);
    assert!(built.contains("2 passages, "), "{built}");
    check(
        "index_found",
        &say(folder, &["index", "search", "idx", "who plays hamlet"]),
    );
    check(
        "index_nothing",
        &say(folder, &["index", "search", "idx", "zebra"]),
    );
    check(
        "index_no_index",
        &say(folder, &["index", "search", ".", "zebra"]),
    );
    check("index_again", &build(&["p.jsonl", "-o", "idx"]));
    check("index_half_line", &build(&["half.jsonl", "-o", "other"]));
    check("index_empty", &build(&["none.jsonl", "-o", "other"]));
    check(
        "index_parameter",
        &build(&["p.jsonl", "-o", "other", "--b", "2"]),
    );
    check(
        "index_no_encoder",
        &build(&["p.jsonl", "-o", "other", "--encoder", "."]),
    );
    assert!(!folder.join("other").exists());
    // With an encoder, what shares no word is found, too.
    let encoder = crate::support::root().join("search/fixtures/bert");
    let encoder = encoder.to_str().unwrap();
    let built = build(&["p.jsonl", "-o", "dense", "--encoder", encoder]);
    assert!(built.contains("2 passages, "), "{built}");
    let found = say(folder, &["index", "search", "dense", "zebra", "--json"]);
    assert_eq!(found.matches("\"id\"").count(), 2, "{found}");
}
