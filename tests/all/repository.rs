//! What holds for the files of the repository.

use std::{fs, path::PathBuf, process::Command};

use crate::support::root;

/// The files under version control with one of these endings.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .current_dir(root())
        .args(["ls-files", "-co", "--exclude-standard"])
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let ends = |name: &&str| endings.iter().any(|ending| name.ends_with(ending));
    listed
        .lines()
        .filter(ends)
        .map(|name| root().join(name))
        .filter(|path| path.exists())
        .collect()
}

#[test]
fn every_source_file_says_what_it_is_for() {
    for path in files(&[".rs"]) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("//!"),
            "`{}` does not begin with `//!`",
            path.display()
        );
    }
}

#[test]
fn no_source_file_holds_two_ideas() {
    for path in files(&[".rs"]) {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 600, "`{}` has {lines} lines", path.display());
    }
}

/// A library crate never prints, exits, or reads the environment.
#[test]
fn libraries_leave_the_process_alone() {
    for path in files(&[".rs"]) {
        let inner = path
            .strip_prefix(root())
            .unwrap()
            .to_string_lossy()
            .into_owned();
        if !["runtime/src", "lm/src", "harness-sdk/src"]
            .iter()
            .any(|crate_| inner.starts_with(crate_))
        {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for word in [
            "println!",
            "eprintln!",
            "process::exit",
            "env::var",
            "env::home",
        ] {
            assert!(!text.contains(word), "`{inner}` has `{word}`");
        }
    }
}

/// A limit that is documented and reached by no test may not be wired at all.
#[test]
fn every_limit_is_reached_by_a_test() {
    // What a command says when a limit is reached counts; the list of all limits does not.
    let tests: String = files(&[".rs", ".snap"])
        .iter()
        .filter(|path| path.starts_with(root().join("tests")) && !path.ends_with("limits.snap"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    for limit in whale_runtime::Limits::table() {
        let named = [
            format!("`{}`", limit.name),
            format!("{}=", limit.name),
            format!("limit {}", limit.name),
        ];
        assert!(
            named.iter().any(|name| tests.contains(name)),
            "no test reaches `{}`",
            limit.name
        );
    }
}

/// `docs` and pages at the top link to files that are there.
#[test]
fn links_between_pages_lead_somewhere() {
    for path in files(&[".md"]) {
        let text = fs::read_to_string(&path).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let link = link.split('#').next().unwrap();
            if link.is_empty() || link.contains("://") {
                continue;
            }
            let target = path.parent().unwrap().join(link);
            assert!(
                target.exists(),
                "`{}` links to `{link}`, which is not there",
                path.display()
            );
        }
    }
}
