//! What every command says of itself, and the ways through them that people take.

use std::fs;

use serde_json::Value;

use crate::support::{self, check, say, whale};

#[test]
fn help_is_what_it_was() {
    let here = support::root();
    check("help", &say(&here, &["--help"]));
    let commands = [
        "new",
        "build",
        "run",
        "inspect",
        "replay",
        "eval",
        "compare",
        "grade",
        "data pull",
        "task check",
        "index build",
        "index search",
        "limits",
        "doctor",
        "completions",
        "man",
    ];
    for command in commands {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = say(&here, &words);
        assert!(
            help.contains("Example"),
            "`{command} --help` has no example"
        );
        check(&format!("help_{}", command.replace(' ', "_")), &help);
    }
}

#[test]
fn limits_are_listed_with_where_they_come_from() {
    check(
        "limits",
        &say(&support::root(), &["limits", "--limit", "wall=20s"]),
    );
}

#[test]
fn completions_and_manual_name_every_command() {
    let here = support::root();
    for arguments in [
        &["completions", "bash"][..],
        &["completions", "zsh"],
        &["man"],
    ] {
        let said = say(&here, arguments);
        for command in ["build", "inspect", "replay", "eval", "compare", "doctor"] {
            assert!(
                said.contains(command),
                "{arguments:?} says nothing of `{command}`"
            );
        }
    }
}

/// From nothing to an answer, as the README says it.
#[test]
fn a_new_harness_builds_and_runs_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    check(
        "new",
        &say(folder, &["new", "my-harness", "--domain", "math"]),
    );
    let built = say(folder, &["build", "my-harness", "-o", "my-harness.wasm"]);
    assert!(built.starts_with("exit code 0"), "{built}");
    let again = say(folder, &["build", "my-harness"]);
    assert!(again.contains("same source as before"), "{again}");
    fs::write(
        folder.join("script"),
        "{\"replies\": [\"```python\\nprint(17 + 25)\\n```\"]}",
    )
    .unwrap();
    let arguments = ["--prompt", "What is 17 + 25?", "--model", "scripted:script"];
    let ran = say(
        folder,
        &[&["run", "my-harness.wasm"], &arguments[..]].concat(),
    );
    assert!(ran.contains("answer   42"), "{ran}");
    // A folder is built on the way.
    let ran = say(folder, &[&["run", "my-harness"], &arguments[..]].concat());
    assert!(ran.contains("answer   42"), "{ran}");
}

#[test]
fn a_module_is_inspected() {
    let folder = tempfile::tempdir().unwrap();
    support::build("math", folder.path());
    let said = say(folder.path(), &["inspect", "math.wasm"]);
    for line in ["contract  0.1.0", "may       call the model", "start-up  "] {
        assert!(said.contains(line), "{said}");
    }
    let json = whale(folder.path(), &["inspect", "math.wasm", "--json"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["kind"], "core");
    assert!(report["start"]["memory"].as_u64().unwrap() > 0);
}

/// Many items: one line each, in their order, whatever the number of jobs.
#[test]
fn items_give_one_line_each_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    support::build("math", folder);
    let rules = r#"{"when": "fails", "error": "the server is down"}
{"when": "slow", "replies": ["\\boxed{1}"], "delay": 300}
{"replies": ["\\boxed{2}"]}"#;
    fs::write(folder.join("script"), rules).unwrap();
    let items =
        "{\"id\": \"a\", \"prompt\": \"slow\"}\n\n{\"id\": \"../b\", \"prompt\": \"quick\"}\n";
    fs::write(folder.join("items"), items).unwrap();
    let arguments = [
        "run",
        "math.wasm",
        "--items",
        "items",
        "--model",
        "scripted:script",
    ];
    let more = ["--rollouts", "2", "--jobs", "4", "--trace", "traces"];
    let ran = whale(folder, &arguments).args(more).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", support::transcript(&ran));
    let lines: Vec<Value> = String::from_utf8(ran.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let seen: Vec<String> = lines
        .iter()
        .map(|line| {
            format!(
                "{} {} {}",
                line["item"], line["rollout"], line["outcome"]["answer"]
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            "\"a\" 0 \"1\"",
            "\"a\" 1 \"1\"",
            "\"../b\" 0 \"2\"",
            "\"../b\" 1 \"2\""
        ]
    );
    let mut traces: Vec<_> = fs::read_dir(folder.join("traces"))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    traces.sort();
    assert_eq!(traces.len(), 4);
    assert_eq!(traces[3], "000001-001.json");

    // A server that is down is nobody's failed answer.
    fs::write(
        folder.join("items"),
        "{\"id\": \"a\", \"prompt\": \"fails\"}\n",
    )
    .unwrap();
    let ran = whale(folder, &arguments).output().unwrap();
    assert_eq!(ran.status.code(), Some(3));
    let line: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(line["outcome"]["kind"], "infrastructure");
}

#[test]
fn a_harness_that_fails_is_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    support::build("hostile", folder);
    fs::write(folder.join("script"), "{\"replies\": [\"x\"]}").unwrap();
    let arguments = [
        "run",
        "hostile.wasm",
        "--prompt",
        "panic",
        "--model",
        "scripted:script",
    ];
    let said = say(folder, &[&arguments[..], &["--no-code"]].concat());
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.starts_with("sandbox"))
        .collect();
    check("panic", &lines.join("\n"));
}

/// Ctrl-C and `kill` leave no process behind.
#[test]
fn a_killed_host_leaves_no_worker() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    support::build("math", folder);
    fs::write(
        folder.join("script"),
        "{\"replies\": [\"x\"], \"delay\": 20000}",
    )
    .unwrap();
    let arguments = [
        "run",
        "math.wasm",
        "--prompt",
        "x",
        "--model",
        "scripted:script",
    ];
    let mut host = whale(folder, &arguments).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", host.id()));
    let mut workers: Vec<String> = vec![children.unwrap_or_default()];
    for task in fs::read_dir(format!("/proc/{}/task", host.id())).unwrap() {
        workers.push(fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    }
    let workers = workers.join(" ");
    assert!(
        !workers.trim().is_empty(),
        "there was no worker to leave behind"
    );
    host.kill().unwrap();
    host.wait().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    for worker in workers.split_whitespace() {
        let left = fs::read_to_string(format!("/proc/{worker}/cmdline")).unwrap_or_default();
        assert!(!left.contains("__role"), "worker {worker} is left over");
    }
}

#[test]
fn the_doctor_finds_what_the_set_up_made() {
    let whole = whale(&support::root(), &["doctor", "--json"])
        .output()
        .unwrap();
    assert_eq!(
        whole.status.code(),
        Some(0),
        "{}",
        support::transcript(&whole)
    );
    let folder = tempfile::tempdir().unwrap();
    let mut doctor = whale(folder.path(), &["doctor"]);
    let said = support::transcript(&doctor.env("WHALE_CACHE", folder.path()).output().unwrap());
    let said: Vec<&str> = said
        .lines()
        .filter(|line| !line.contains("  disk "))
        .collect();
    check(
        "doctor_finds_nothing",
        &said
            .join("\n")
            .replace(&*folder.path().to_string_lossy(), "[cache]"),
    );
}
