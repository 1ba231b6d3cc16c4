//! The same seed gives the same record, and a record replays.

use std::fs;

use serde_json::Value;

use crate::support::{self, check, say, whale};

const SCRIPT: &str = r#"{"replies": ["```python\nprint(6 * 7)\n```", "The answer is 41.", "```python\nprint(1 / 0)\n```", "\\boxed{42}"]}"#;

/// A record without its times.
fn record(folder: &std::path::Path, name: &str, seed: &str) -> Value {
    let arguments = [
        "run",
        "math.wasm",
        "--prompt",
        "What is 6 times 7?",
        "--model",
        "scripted:script",
    ];
    let ran = whale(folder, &arguments)
        .args(["--seed", seed, "--trace", name])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", support::transcript(&ran));
    let mut record: Value = serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap();
    record.as_object_mut().unwrap().remove("times").unwrap();
    record
}

#[test]
fn one_seed_gives_one_record_and_another_gives_another() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    support::build("math", folder);
    fs::write(folder.join("script"), SCRIPT).unwrap();
    let first = record(folder, "a.json", "1");
    assert_eq!(first, record(folder, "b.json", "1"));
    assert_ne!(first["calls"], record(folder, "c.json", "2")["calls"]);
    let fuel = first["used"]["fuel"].to_string();
    check(
        "replay",
        &say(folder, &["replay", "a.json"]).replace(&fuel, "[fuel]"),
    );
}

#[test]
fn a_record_that_was_changed_does_not_replay() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    support::build("math", folder);
    fs::write(folder.join("script"), SCRIPT).unwrap();
    record(folder, "a.json", "1");
    let text = fs::read_to_string(folder.join("a.json")).unwrap();

    let mut other: Value = serde_json::from_str(&text).unwrap();
    other["calls"][0]["call"]["complete"][0]["sampling"]["max_tokens"] = 7.into();
    fs::write(folder.join("b.json"), other.to_string()).unwrap();
    let replay = say(folder, &["replay", "b.json"]);
    assert!(replay.contains("the replay differs: call 1 is"), "{replay}");

    let fuel = serde_json::from_str::<Value>(&text).unwrap()["used"]["fuel"].clone();
    fs::write(
        folder.join("c.json"),
        text.replace(&format!("\"fuel\": {fuel}"), "\"fuel\": 1"),
    )
    .unwrap();
    let replay = say(folder, &["replay", "c.json"]).replace(&fuel.to_string(), "[fuel]");
    check("replay_with_other_fuel", &replay);
    let mut record: Value = serde_json::from_str(&text).unwrap();
    record["outcome"]["answer"] = "41".into();
    fs::write(folder.join("d.json"), record.to_string()).unwrap();
    let replay = say(folder, &["replay", "d.json"]);
    assert!(
        replay.contains("the replay differs: it ended with"),
        "{replay}"
    );
    record["calls"].as_array_mut().unwrap().pop();
    fs::write(folder.join("e.json"), record.to_string()).unwrap();
    let replay = say(folder, &["replay", "e.json"]);
    assert!(replay.contains("the record has none"), "{replay}");
}

/// What a guest can see of time and chance comes from the seed alone.
#[test]
fn clock_and_randomness_come_from_the_seed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    support::build("hostile", folder);
    fs::write(folder.join("script"), SCRIPT).unwrap();
    let answer = |seed: &str| {
        let arguments = [
            "run",
            "hostile.wasm",
            "--prompt",
            "clock and randomness",
            "--json",
        ];
        let model = ["--model", "scripted:script", "--no-code", "--seed", seed];
        let ran = whale(folder, &arguments).args(model).output().unwrap();
        let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
        result["outcome"]["answer"].as_str().unwrap().to_owned()
    };
    assert_eq!(answer("1"), answer("1"));
    assert_ne!(answer("1"), answer("2"));
}
