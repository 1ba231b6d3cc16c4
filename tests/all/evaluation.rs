//! `eval` and `compare`, with scripted models.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{self, transcript, whale, write};

const SETTINGS: &str = r#"
name = "sums"
domain = "math"
items = ["items.jsonl"]
[grader]
kind = "math"
[splits]
search = 8
confirm = 2
test = 2
"#;

/// A folder with a task of sums, and harnesses.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new(settings: &str, files: &[(&str, &str)]) -> Self {
        let bench = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        write(bench.path(), &[("task/task.toml", settings)]);
        for (name, text) in files {
            write(bench.path(), &[(name, text)]);
        }
        bench
    }

    fn sums() -> Self {
        let item = |i: u32| {
            format!(
                "{{\"question\": \"What is {i} + 1?\", \"answer\": \"{}\"}}\n",
                i + 1
            )
        };
        let items: String = (10..30).map(item).collect();
        Self::new(SETTINGS, &[("task/items.jsonl", &items)])
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn build(&self, name: &str) -> PathBuf {
        support::build(name, self.path())
    }

    pub(crate) fn script(&self, text: &str) {
        fs::write(self.path().join("script"), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = whale(self.path(), arguments);
        command.args(["--task", "task", "--model", "scripted:script"]);
        command
    }

    /// The summary that `eval --json` prints.
    pub(crate) fn eval(&self, harness: &str, more: &[&str]) -> Value {
        let out = format!("{harness}-{}.jsonl", more.join("").replace(['/', '='], "-"));
        let ran = self
            .command(&["eval", &format!("{harness}.wasm"), "--json", "--out", &out])
            .args(more)
            .output()
            .unwrap();
        serde_json::from_slice(&ran.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", transcript(&ran)))
    }
}

/// Right for even numbers, and half of the time for others.
const HALF: &str = r#"{"when": "What is 10 + 1?", "replies": ["\\boxed{11}"]}
{"when": "What is 12 + 1?", "replies": ["\\boxed{13}"]}
{"when": "What is 14 + 1?", "replies": ["\\boxed{15}"]}
{"replies": ["I would say 7.", "\\boxed{7}"]}"#;

#[test]
fn an_evaluation_counts_what_is_right() {
    let bench = Bench::sums();
    bench.build("h0-math");
    bench.script(HALF);
    let all = bench.eval("h0-math", &["--split", "weights", "--k", "4"]);
    let mean = all["mean"]["mean"].as_f64().unwrap();
    let items = all["mean"]["items"].as_u64().unwrap();
    assert_eq!(items, 8);
    assert_eq!(all["scored"], 32);
    // Each of the three that are always right is in some split.
    let right = (mean * 8.0).round();
    assert!((mean * 8.0 - right).abs() < 1e-9 && right <= 3.0, "{mean}");
    // A reply without a box has no form.
    let format = all["diagnostics"]["format"].as_f64().unwrap();
    assert!((0.2..1.0).contains(&format), "{format}");
    // Rollouts never collapse: the same item has different replies.
    let lines = fs::read_to_string(bench.path().join("h0-math---splitweights--k4.jsonl")).unwrap();
    let entries: Vec<Value> = lines
        .lines()
        .skip(1)
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(entries.len(), 32);
    let graded = |item: &Value| {
        let same = entries.iter().filter(|e| &e["item"] == item);
        let mut graded: Vec<String> = same.map(|e| e["verdict"]["graded"].to_string()).collect();
        graded.dedup();
        graded.len()
    };
    assert!(entries.iter().any(|entry| graded(&entry["item"]) > 1));
}

#[test]
fn a_killed_evaluation_goes_on_and_comes_to_the_same() {
    let bench = Bench::sums();
    bench.build("h0-math");
    bench.script(&HALF.replace("\"replies\"", "\"delay\": 40, \"replies\""));
    let more = ["--k", "6", "--jobs", "2"];
    let whole = bench.eval("h0-math", &more);
    let arguments = ["eval", "h0-math.wasm", "--out", "killed.jsonl", "--json"];
    let results = bench.path().join("killed.jsonl");
    let lines = || fs::read_to_string(&results).map_or(0, |text| text.lines().count());
    for kill_at in [5, 17, 30] {
        let mut running = bench.command(&arguments).args(more).spawn().unwrap();
        let begin = Instant::now();
        while lines() < kill_at && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        running.kill().unwrap();
        running.wait().unwrap();
        let done = lines();
        assert!(done >= kill_at && done < 49, "{done}");
        // As if the process had ended in the middle of a line.
        let mut text = fs::read_to_string(&results).unwrap();
        text.push_str("{\"item\": \"items.js");
        fs::write(&results, text).unwrap();
    }
    let went_on = bench.command(&arguments).args(more).output().unwrap();
    let summary: Value = serde_json::from_slice(&went_on.stdout).unwrap();
    for same in ["mean", "scored", "failed", "outcomes", "diagnostics"] {
        assert_eq!(summary[same], whole[same], "{same}");
    }
    assert_eq!(lines(), 49);
    // Once more, and nothing runs.
    let again = bench.command(&arguments).args(more).output().unwrap();
    let summary: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(summary["mean"], whole["mean"]);
    // Another script is another model.
    bench.script(HALF);
    let other = bench.command(&arguments).args(more).output().unwrap();
    assert_eq!(other.status.code(), Some(2));
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        said.contains("holds the results of another evaluation: its model is"),
        "{said}"
    );
    // And another reference under the same name is another item.
    let items = bench.path().join("task/items.jsonl");
    let text = fs::read_to_string(&items).unwrap();
    fs::write(&items, text.replace("\"11\"", "\"12\"")).unwrap();
    let other = bench.command(&arguments).args(more).output().unwrap();
    assert_eq!(other.status.code(), Some(2));
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(said.contains("its content is"), "{said}");
}

#[test]
fn a_better_harness_is_found_better() {
    let bench = Bench::sums();
    bench.build("h0-math");
    bench.build("math");
    // It writes programs and never a box.
    let script: String = (10..30)
        .map(|i| {
            format!(
                "{{\"when\": \"What is {i} + 1?\", \"replies\": [\"```python\\nprint({i} + 1)\\n```\"]}}\n"
            )
        })
        .collect();
    bench.script(&script);
    let compare = |more: &[&str]| {
        let arguments = ["compare", "h0-math.wasm", "math.wasm", "--k", "2"];
        let mut command = bench.command(&arguments);
        command.env("WHALE_CACHE", support::cache()).args(more);
        command.output().unwrap()
    };
    let ran = compare(&["--json"]);
    let found: Value = serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", transcript(&ran)));
    assert_eq!(found["comparison"]["difference"], 1.0, "{found}");
    assert_eq!(found["comparison"]["counts"]["wins"], 8);
    let said = String::from_utf8(compare(&[]).stdout).unwrap();
    assert!(said.contains("verdict    b is better"), "{said}");
    let same = bench
        .command(&["compare", "math.wasm", "math.wasm"])
        .output()
        .unwrap();
    let said = String::from_utf8(same.stdout).unwrap();
    assert!(said.contains("no difference is shown"), "{said}");
    let nothing = bench.command(&["compare", "math.wasm"]).output().unwrap();
    support::check("compare_nothing", &transcript(&nothing));
}

#[test]
fn opening_the_test_split_is_recorded() {
    let bench = Bench::sums();
    bench.build("h0-math");
    bench.script(HALF);
    for times in 1..=2 {
        let ran = bench
            .command(&[
                "eval",
                "h0-math.wasm",
                "--split",
                "test",
                "--out",
                "t.jsonl",
            ])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", transcript(&ran));
        let openings = fs::read_to_string(bench.path().join("task/openings.jsonl")).unwrap();
        assert_eq!(openings.lines().count(), times);
        let told = String::from_utf8_lossy(&ran.stderr).contains("was opened 1 time before");
        assert_eq!(told, times == 2);
    }
}

const CHESS: &str = r#"
name = "puzzles"
domain = "chess"
items = ["items.csv"]
[grader]
kind = "chess"
[splits]
search = 1
confirm = 0
test = 0
"#;
const PUZZLE: &str = "PuzzleId,FEN,Moves,Rating,Themes,GameUrl\n\
    0008Q,8/4R3/1p2P3/p4r2/P6p/1P3Pk1/4K3/8 w - - 1 64,e7f7 f5e5 e2f1 e5e6,1383,rookEndgame,https://lichess.org/MQSyb3KW#127\n";

fn chess() -> Bench {
    let bench = Bench::new(CHESS, &[("task/items.csv", PUZZLE)]);
    bench.build("h0-chess");
    bench
}

#[test]
fn puzzles_are_played_and_graded_by_their_moves() {
    let bench = chess();
    let check = |script: &str, right: f64, signal: &str| {
        bench.script(script);
        let file = bench.path().join("h0-chess-.jsonl");
        let _ = fs::remove_file(file);
        let found = bench.eval("h0-chess", &[]);
        assert_eq!(found["mean"]["mean"], right, "{found}");
        if !signal.is_empty() {
            assert_eq!(found["diagnostics"][signal], 1.0, "{found}");
        }
    };
    let solves = r#"{"when": "accepted: f5e5", "replies": ["<move>e5e6</move>"]}
{"replies": ["I play <move>f5e5</move>"]}"#;
    check(solves, 1.0, "");
    check(r#"{"replies": ["<move>g3g2</move>"]}"#, 0.0, "wrong-move");
    check(r#"{"replies": ["<move>f5a1</move>"]}"#, 0.0, "illegal");
    check(r#"{"replies": ["Rook to e5!"]}"#, 0.0, "malformed");
}

/// Where the starting point fails at the form, the strong harness reads the same words as moves.
#[test]
fn the_strong_harness_reads_moves_in_any_words() {
    let bench = chess();
    bench.build("chess");
    bench.script(
        r#"{"when": "Rxe6", "replies": [" Rxe6, of course"]}
{"replies": [" Re5+", " Re5+ I think", " the rook"]}"#,
    );
    let strong = bench.eval("chess", &[]);
    assert_eq!(strong["mean"]["mean"], 1.0, "{strong}");
    assert_eq!(strong["diagnostics"]["harness-authored"], 0.0);
    assert_eq!(strong["diagnostics"]["solved-in-2"], 1.0);
    let start = bench.eval("h0-chess", &[]);
    assert_eq!(start["mean"]["mean"], 0.0, "{start}");
}

/// A harness that finds the moves by itself gains nothing.
#[test]
fn a_harness_that_moves_by_itself_is_found_out() {
    let bench = chess();
    let source = r#"use whale_harness::prelude::*;
harness!(run);
fn run(_: &Task) -> Result<Answer> {
    let reply = Chat::new().user("hm").complete()?;
    environment::act("f5e5")?;
    environment::act("e5e6")?;
    Ok(Answer::new(reply.text))
}
"#;
    let about = "name = \"own\"\ndomain = \"chess\"\ncontract = \"0.1\"\ndescription = \"x\"\n";
    write(
        bench.path(),
        &[("own/harness.toml", about), ("own/src/lib.rs", source)],
    );
    let built = whale(bench.path(), &["build", "own"]).output().unwrap();
    assert!(built.status.success(), "{}", transcript(&built));
    bench.script(r#"{"replies": ["no idea"]}"#);
    let found = bench.eval("own", &[]);
    assert_eq!(found["mean"]["mean"], 0.0, "{found}");
    assert_eq!(found["diagnostics"]["harness-authored"], 1.0);
}

/// The two questions' answers stand in the passages.
pub(crate) const QUESTIONS: &str = r#"{"question": "Where does the Danube rise?", "answers": ["Black Forest", "in the Black Forest"]}
{"question": "Who painted Guernica?", "answers": ["Pablo Picasso"]}
"#;
const PASSAGES: &str = r#"{"id": "a", "title": "Danube", "text": "The Danube rises in the Black Forest and flows east."}
{"id": "b", "title": "Guernica", "text": "Guernica was painted by Pablo Picasso."}
"#;
pub(crate) const SEARCHQA: &str = r#"
name = "questions"
domain = "searchqa"
items = ["items.jsonl"]
[grader]
kind = "qa"
[splits]
search = 2
confirm = 0
test = 0
[search]
index = "index"
"#;

#[test]
fn questions_are_searched_read_and_graded() {
    let files = [
        ("task/items.jsonl", QUESTIONS),
        ("passages.jsonl", PASSAGES),
    ];
    let bench = Bench::new(SEARCHQA, &files);
    let built = whale(
        bench.path(),
        &["index", "build", "passages.jsonl", "-o", "task/index"],
    );
    let built = { built }.output().unwrap();
    assert!(built.status.success(), "{}", transcript(&built));
    bench.build("h0-searchqa");
    bench.build("searchqa");
    bench.script(
        r#"{"when": "<information>Guernica", "replies": ["<answer>Dalí</answer>"]}
{"when": "<information>Danube", "replies": ["<answer>the Black Forest</answer>"]}
{"when": "Guernica?", "replies": ["<search>Guernica painter</search>"]}
{"replies": ["<search>Danube</search>"]}"#,
    );
    let found = bench.eval("h0-searchqa", &[]);
    assert_eq!(found["mean"]["mean"], 0.5, "{found}");
    for (name, rate) in [("format", 1.0), ("retrieved", 1.0), ("extracted", 0.5)] {
        assert_eq!(found["diagnostics"][name], rate, "{name}: {found}");
    }
    // The strong one asks for short readings and prefers what stands in a passage.
    bench.script(
        r#"{"when": "Passage: Guernica", "replies": [" Dalí", " Pablo Picasso", " Pablo Picasso."]}
{"replies": [" Black Forest"]}"#,
    );
    let found = bench.eval("searchqa", &[]);
    assert_eq!(found["mean"]["mean"], 1.0, "{found}");
}

#[test]
fn a_judge_decides_and_its_failures_are_counted() {
    let files = [
        ("task/items.jsonl", QUESTIONS),
        ("passages.jsonl", PASSAGES),
    ];
    let settings = SEARCHQA.replace("kind = \"qa\"", "kind = \"qa\"\njudge = true");
    let bench = Bench::new(&settings, &files);
    let built = whale(
        bench.path(),
        &["index", "build", "passages.jsonl", "-o", "task/index"],
    )
    .output()
    .unwrap();
    assert!(built.status.success(), "{}", transcript(&built));
    bench.build("h0-searchqa");
    bench.script(r#"{"replies": ["<answer>in the mountains, or by W. S.</answer>"]}"#);
    let judged = |name: &str, says: &str| {
        let judge = bench.path().join(name);
        fs::write(&judge, format!("{{\"replies\": [\"{says}\"]}}")).unwrap();
        bench.eval("h0-searchqa", &["--judge", &format!("scripted:{name}")])
    };
    let accepts = judged("lenient", "Yes.");
    assert_eq!(accepts["mean"]["mean"], 1.0, "{accepts}");
    assert_eq!(accepts["diagnostics"]["judge-failed"], 0.0);
    let rejects = judged("strict", "No");
    assert_eq!(rejects["mean"]["mean"], 0.0);
    // One that refuses leaves the exact match, and that is counted.
    let refuses = judged("refuses", "I can not help with that.");
    assert_eq!(refuses["mean"]["mean"], 0.0);
    assert_eq!(refuses["diagnostics"]["judge-failed"], 1.0);
    let none = bench
        .command(&["eval", "h0-searchqa.wasm"])
        .output()
        .unwrap();
    support::check("judge_missing", &transcript(&none));
}
