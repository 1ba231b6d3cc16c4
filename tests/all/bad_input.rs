//! Wrong files and wrong words, and what is said about each.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::support::{self, check, core_guest, say, whale, write};

/// What is said of a module with these bytes.
fn inspect(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("module.wasm"), bytes).unwrap();
    say(folder.path(), &["inspect", "module.wasm"])
}

#[test]
fn modules_that_are_none() {
    check("not_wasm", &inspect(b"#!/bin/sh\necho \x1b[31mhello\n"));
    check("empty_file", &inspect(b""));
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(support::build("math", folder.path())).unwrap();
    check("truncated", &inspect(&whole[..whole.len() / 2]));
    check(
        "huge_module",
        &inspect(&[b"\0asm\x01\0\0\0".to_vec(), vec![0; 17 << 20]].concat()),
    );
    check("no_module", &say(folder.path(), &["inspect", "none.wasm"]));
}

#[test]
fn modules_for_something_else() {
    let wat = |text: &str| wat::parse_str(text).unwrap();
    check(
        "other_world",
        &inspect(&wat(
            "(component (import \"wasi:http/types@0.2.0\" (instance)))",
        )),
    );
    check("other_exports", &inspect(&wat("(component)")));
    check(
        "not_the_sdk",
        &inspect(&wat("(module (func (export \"run\")))")),
    );
    let importing = |module: &str, name: &str| {
        core_guest(&format!(
            r#"(module
                (import "{module}" "{name}" (func (param i32)))
                (memory (export "memory") 1)
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
                (func (export "run") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 8)))"#
        ))
    };
    check("unknown_import", &inspect(&importing("env", "system")));
    check(
        "other_version",
        &inspect(&importing("whale:harness/model@0.2.0", "complete")),
    );
}

#[test]
fn words_that_are_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    support::build("math", folder);
    let run = |arguments: &[&str]| say(folder, &[&["run", "math.wasm"], arguments].concat());
    check(
        "unknown_model",
        &run(&["--prompt", "x", "--model", "mystery:7b"]),
    );
    check(
        "model_without_kind",
        &run(&["--prompt", "x", "--model", "smollm2"]),
    );
    check(
        "model_missing",
        &run(&["--prompt", "x", "--model", "local:nothing"]),
    );
    check(
        "device_missing",
        &run(&["--prompt", "x", "--device", "cuda:0"]),
    );
    check(
        "device_unknown",
        &run(&["--prompt", "x", "--device", "abacus"]),
    );
    let adapter = ["--adapter", "../nothing"];
    check(
        "adapter_missing",
        &run(&[&["--prompt", "x"], adapter.as_slice()].concat()),
    );
    check(
        "adapter_of_no_local_model",
        &run(&[
            &["--prompt", "x", "--model", "scripted:x"],
            adapter.as_slice(),
        ]
        .concat()),
    );
    check(
        "openai_without_name",
        &run(&["--prompt", "x", "--model", "openai:http://127.0.0.1:1/v1"]),
    );
    check(
        "openai_bad_address",
        &run(&["--prompt", "x", "--model", "openai:ftp://x/v1#m"]),
    );
    check(
        "script_missing",
        &run(&["--prompt", "x", "--model", "scripted:nothing"]),
    );
    check(
        "unknown_limit",
        &run(&["--prompt", "x", "--limit", "wal=20s"]),
    );
    check(
        "limit_value",
        &run(&["--prompt", "x", "--limit", "wall=20"]),
    );
    check("empty_prompt", &run(&["--prompt", " "]));
    check("no_prompt", &run(&[]));
    fs::write(folder.join("script"), "{\"reply\": \"x\"}\n").unwrap();
    check(
        "script_wrong",
        &run(&["--prompt", "x", "--model", "scripted:script"]),
    );
    fs::write(
        folder.join("items"),
        "{\"id\": \"a\", \"prompt\": \"x\"}\n{\"id\": 7}\n",
    )
    .unwrap();
    check("items_wrong", &run(&["--items", "items"]));
    fs::write(
        folder.join("items"),
        "{\"id\": \"a\", \"prompt\": \"x\"}\n".repeat(2),
    )
    .unwrap();
    check("items_twice", &run(&["--items", "items"]));
    check("folder_exists", &say(folder, &["new", "."]));
    check("folder_name", &say(folder, &["new", "my harness"]));
    check("build_no_folder", &say(folder, &["build", "math.wasm"]));
    fs::write(folder.join("damaged.gguf"), b"GGUF\x03\0\0\0").unwrap();
    check(
        "model_damaged",
        &run(&["--prompt", "x", "--model", "local:damaged.gguf"]),
    );
}

#[test]
fn records_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(
        folder,
        &[
            ("a", "{}"),
            ("b", "{\"format\": 99}"),
            ("c", "{\"format\": 1}"),
        ],
    );
    for name in ["a", "b", "c", "d"] {
        check(&format!("record_{name}"), &say(folder, &["replay", name]));
    }
}

/// What a guest writes reaches the terminal as text, never as a command to it.
#[test]
fn control_sequences_of_a_guest_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    support::build("hostile", folder);
    fs::write(folder.join("script"), "{\"replies\": [\"x\"]}").unwrap();
    let model = ["--model", "scripted:script", "--no-code"];
    let arguments = ["run", "hostile.wasm", "--prompt", "control sequences"];
    let said = say(folder, &[&arguments[..], &model].concat());
    assert!(!said.contains('\x1b') && !said.contains('\u{202e}'));
    check("control_sequences", said.lines().nth(2).unwrap());
}

/// A disk that fills up while a record is written leaves the old one whole, and nothing beside it.
#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    support::build("math", folder);
    fs::write(folder.join("script"), "{\"replies\": [\"\\\\boxed{4}\"]}").unwrap();
    let small = folder.join("small");
    fs::create_dir(&small).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=4k none '{0}' && echo old > '{0}/trace.json' && \
         '{1}' run math.wasm --prompt x --model scripted:script --no-code --trace '{0}/trace.json'; \
         echo \"exit $?\"; cat '{0}/trace.json'; ls -A '{0}'",
        small.display(),
        support::WHALE,
    );
    let mut shell = std::process::Command::new("unshare");
    shell
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .current_dir(folder);
    check("full_disk", &support::transcript(&shell.output().unwrap()));
}

/// Native code is loaded as it is, so that a cache that others may write is not used.
#[test]
fn a_cache_that_is_open_to_others_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let native = folder.path().join("native");
    fs::create_dir(&native).unwrap();
    fs::set_permissions(&native, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(folder.path().join("m.wasm"), b"\0asm\x01\0\0\0").unwrap();
    let mut inspect = whale(folder.path(), &["inspect", "m.wasm"]);
    let said = support::transcript(&inspect.env("WHALE_CACHE", folder.path()).output().unwrap());
    check(
        "open_cache",
        &said.replace(&user(&native), "belongs to user [user]"),
    );
}

fn user(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt as _;

    format!("belongs to user {}", fs::metadata(path).unwrap().uid())
}
