//! A harness in C: the contract belongs to no language.

use std::{fs, process::Command};

use wit_parser::Resolve;

use crate::support::{self, whale};

#[test]
fn a_harness_in_c_answers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_dir(support::root().join("harness-sdk/wit"))
        .unwrap();
    let world = resolve.select_world(&[package], Some("harness")).unwrap();
    let mut files = wit_bindgen_core::Files::default();
    wit_bindgen_c::Opts::default()
        .build()
        .generate(&mut resolve, world, &mut files)
        .unwrap();
    for (name, contents) in files.iter() {
        fs::write(folder.join(name), contents).unwrap();
    }
    let mut clang = Command::new("clang");
    clang
        .current_dir(folder)
        .args([
            "--target=wasm32-wasi",
            "-O2",
            "-I.",
            "-I/usr/include/wasm32-wasi",
            "-nostdlib",
        ])
        .args([
            "-L/usr/lib/wasm32-wasi",
            "-Wl,--no-entry",
            "-o",
            "c-math.wasm",
        ])
        .arg(support::harness("c-math").join("harness.c"))
        .args(["harness.c", "harness_component_type.o", "-lc"]);
    let compiled = clang
        .output()
        .expect("clang is installed by `cargo xtask test`");
    assert!(
        compiled.status.success(),
        "{}",
        support::transcript(&compiled)
    );

    let script = r#"{"when": "6 times 7", "replies": ["I think <answer>42</answer>."]}"#;
    fs::write(folder.join("script"), script).unwrap();
    let arguments = [
        "run",
        "c-math.wasm",
        "--prompt",
        "What is 6 times 7?",
        "--no-code",
    ];
    let more = ["--model", "scripted:script", "--trace", "trace.json"];
    let ran = support::transcript(&whale(folder, &arguments).args(more).output().unwrap());
    assert!(ran.contains("answer   42"), "{ran}");
    let replayed = support::say(folder, &["replay", "trace.json"]);
    assert!(replayed.contains("identical: 1 call,"), "{replayed}");
}
