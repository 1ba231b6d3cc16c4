//! A kernel that offers no jail.

use std::{collections::BTreeMap, thread};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::support::{self, check, transcript, whale};

/// Runs the program as on a kernel without Landlock: its first system call does not exist.
fn say(folder: &std::path::Path, arguments: &[&str]) -> String {
    let mut command = whale(folder, arguments);
    let output = thread::spawn(move || {
        let calls = BTreeMap::from([(libc::SYS_landlock_create_ruleset, Vec::new())]);
        let absent = SeccompAction::Errno(libc::ENOSYS as u32);
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(calls, SeccompAction::Allow, absent, arch).unwrap();
        // For this thread, and what it starts.
        seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
        command.output().unwrap()
    });
    transcript(&output.join().unwrap())
}

#[test]
fn without_a_jail_nothing_runs_unless_a_person_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let module = support::build("math", folder);
    std::fs::write(folder.join("script"), r#"{"replies": ["\\boxed{4}"]}"#).unwrap();
    let made = say(folder, &["new", "h"]);
    assert!(made.starts_with("exit code 0"), "{made}");
    check("no_jail_build", &say(folder, &["build", "h"]));
    assert!(!folder.join("h.wasm").exists());
    let built = say(folder, &["build", "h", "--unsafe-no-jail"]);
    assert!(built.starts_with("exit code 0"), "{built}");

    // Compiled before, so that it is the worker that is refused.
    let warm = support::say(folder, &["inspect", "math.wasm"]);
    assert!(warm.starts_with("exit code 0"), "{warm}");
    assert!(module.exists());
    let run = [
        "run",
        "math.wasm",
        "--prompt",
        "x",
        "--model",
        "scripted:script",
        "--no-code",
    ];
    let said = say(folder, &run);
    assert!(
        said.starts_with("exit code 3") && said.contains("Landlock"),
        "{said}"
    );
    let said = say(folder, &[&run[..], &["--unsafe-no-jail"]].concat());
    assert!(said.contains("answer   4"), "{said}");

    let doctor = say(folder, &["doctor"]);
    assert!(doctor.starts_with("exit code 3"), "{doctor}");
    assert!(
        doctor.contains("missing  jail       landlock no"),
        "{doctor}"
    );
}
