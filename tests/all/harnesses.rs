//! The project's harnesses, on scripted models and on a real one.

use std::fs;

use serde_json::Value;

use crate::support::{self, whale};

/// The answer of a harness under a script.
fn answer(harness: &str, script: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let module = support::build(harness, folder);
    fs::write(folder.join("script"), script).unwrap();
    let arguments = [
        "--prompt",
        "What is 6 times 7?",
        "--model",
        "scripted:script",
        "--json",
    ];
    let ran = whale(folder, &["run"])
        .arg(module)
        .args(arguments)
        .output()
        .unwrap();
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", support::transcript(&ran)))
}

#[track_caller]
fn check(harness: &str, script: &str, expected: &str, calls: u64) {
    let result = answer(harness, script);
    assert_eq!(result["outcome"]["answer"], expected, "{result}");
    assert_eq!(result["used"]["model-calls"], calls, "{result}");
}

#[test]
fn h0_for_arithmetic_takes_the_last_number() {
    let script = r#"{"replies": ["6 times 7 is 6 + 36, that is 42."]}"#;
    check("h0-arithmetic", script, "42", 1);
    check("h0-arithmetic", r#"{"replies": ["I can't say."]}"#, "", 1);
}

/// METHOD: no system prompt, two turns, the first fence is run, the answer stands in a box.
#[test]
fn h0_runs_the_first_fence_and_takes_the_box() {
    check("h0-math", r#"{"replies": ["It is \\boxed{42}."]}"#, "42", 1);
    let turns = r#"{"when": "```output\n42\n```", "replies": ["So \\boxed{42}."]}
{"replies": ["```python\nprint(6 * 7)\n```\nor\n```python\nprint(0)\n```"]}"#;
    check("h0-math", turns, "42", 2);
    // Never a box: no answer, and no third turn.
    check(
        "h0-math",
        r#"{"replies": ["```python\nprint(6 * 7)\n```"]}"#,
        "",
        2,
    );
    // A failed program's traceback is shown to the model.
    let failed = r#"{"when": "ZeroDivisionError", "replies": ["\\boxed{none}"]}
{"replies": ["```python\n1 / 0\n```"]}"#;
    check("h0-math", failed, "none", 2);
}

#[test]
fn the_strong_harness_votes_and_repairs() {
    check(
        "math",
        r#"{"replies": ["```python\nprint('answer:', 6 * 7)\n```"]}"#,
        "42",
        5,
    );
    // A program that fails is repaired once it is told how.
    let repaired = r#"{"when": "ZeroDivisionError", "replies": ["```python\nprint(42)\n```"]}
{"replies": ["```python\nprint(1 / 0)\n```"]}"#;
    check("math", repaired, "42", 10);
    // What is said counts only where nothing was printed.
    check("math", r#"{"replies": ["I think it is 41."]}"#, "41", 5);
    let result = answer("math", r#"{"replies": ["I do not know."]}"#);
    assert_eq!(result["outcome"]["kind"], "gave-up");
    assert_eq!(result["used"]["model-calls"], 15);
}

#[test]
fn every_domain_has_a_template_that_builds() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for domain in ["math", "searchqa", "chess"] {
        let name = format!("my-{domain}");
        let made = whale(folder, &["new", &name, "--domain", domain])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", support::transcript(&made));
        let about = fs::read_to_string(folder.join(&name).join("harness.toml")).unwrap();
        assert!(about.contains(&format!("name = \"{name}\"")), "{about}");
        let built = whale(folder, &["build", &name]).output().unwrap();
        assert!(built.status.success(), "{}", support::transcript(&built));
    }
}

/// The small real model, through the sandbox: an answer, token ids in the record, and the record
/// replays. Slow: a model of 135 million parameters on the processor.
#[test]
fn slow_a_real_model_answers_and_replays() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let template = ["new", "h"];
    assert!(whale(folder, &template).output().unwrap().status.success());
    let arguments = [
        "run",
        "h",
        "--prompt",
        "What is 17 + 25?",
        "--trace",
        "trace.json",
    ];
    let ran = whale(folder, &arguments)
        .args(["--limit", "reply-tokens=60"])
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", support::transcript(&ran));
    let record: Value =
        serde_json::from_slice(&fs::read(folder.join("trace.json")).unwrap()).unwrap();
    let tokens = &record["calls"][0]["tokens"][0];
    let sampled = tokens["sampled"].as_array().unwrap();
    assert!(!sampled.is_empty() && sampled.len() <= 60);
    assert_eq!(
        tokens["log-probabilities"].as_array().unwrap().len(),
        sampled.len()
    );
    // The chat template's own head: `<|im_start|>system`.
    assert_eq!(tokens["prompt"][0], 1);
    let replayed = whale(folder, &["replay", "trace.json"]).output().unwrap();
    assert!(
        replayed.status.success(),
        "{}",
        support::transcript(&replayed)
    );
}
