//! What a candidate's source may not do while it is compiled.

use std::{fs, path::Path};

use crate::support::{check, say, write};

const MANIFEST: &str = "name = \"candidate\"\ndomain = \"math\"\ncontract = \"0.1\"\n";
const HEAD: &str = "use whale_harness::prelude::*;\nharness!(run);\n";

/// Builds a candidate with this source.
fn build(source: &str) -> String {
    build_in(tempfile::tempdir().unwrap().path(), source, &[])
}

fn build_in(folder: &Path, source: &str, limits: &[&str]) -> String {
    write(
        folder,
        &[("harness.toml", MANIFEST), ("src/lib.rs", source)],
    );
    let limits = limits.iter().flat_map(|limit| ["--limit", limit]);
    say(
        folder,
        &[&["build", "."][..], &limits.collect::<Vec<_>>()].concat(),
    )
}

fn answering(expression: &str) -> String {
    format!("{HEAD}fn run(_: &Task) -> Result<Answer> {{ Ok(Answer::new({expression})) }}\n")
}

#[test]
fn a_mistake_is_shown_as_the_compiler_says_it() {
    let said = build(&answering("1 + \"a\""));
    // What the compiler advises differs from version to version.
    let said = said.split("  = help").next().unwrap();
    check("build_mistake", said.trim_end());
}

#[test]
fn a_file_of_the_machine_is_out_of_reach_by_every_route() {
    for (name, expression) in [
        ("include_str", "include_str!(\"/etc/passwd\")"),
        (
            "include_bytes",
            "format!(\"{:?}\", include_bytes!(\"/etc/passwd\"))",
        ),
        (
            "climbing",
            "include_str!(\"../../../../../../../../etc/passwd\")",
        ),
        ("include", "include!(\"/etc/passwd\")"),
    ] {
        let said = build(&answering(expression));
        assert!(!said.contains("root:"), "{name}: {said}");
        check(&format!("reads_{name}"), &said);
    }
    let module = format!(
        "#[path = \"/etc/passwd\"]\nmod passwd;\n{}",
        answering("\"\"")
    );
    check("reads_module", &build(&module));
}

/// The toolchain's own folders can be read by the compiler, and still are no business of a
/// candidate's.
#[test]
fn a_file_of_the_toolchain_is_refused_afterwards() {
    check(
        "reads_toolchain",
        &build(&answering("include_str!(\"/usr/lib/os-release\")")),
    );
}

#[test]
fn the_environment_is_empty() {
    check(
        "reads_environment",
        &build(&answering("option_env!(\"HOME\").unwrap_or(\"none\")")),
    );
    check("needs_environment", &build(&answering("env!(\"PATH\")")));
}

#[test]
fn links_and_odd_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("prompts")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("prompts/a.txt")).unwrap();
    let source = answering("include_str!(\"../prompts/a.txt\")");
    check("symlink", &build_in(folder, &source, &[]));
    fs::remove_file(folder.join("prompts/a.txt")).unwrap();

    std::os::unix::fs::symlink("/etc", folder.join("src/etc")).unwrap();
    check("symlink_folder", &build_in(folder, &source, &[]));
    fs::remove_file(folder.join("src/etc")).unwrap();

    fs::write(folder.join("src/bad\nname.rs"), "").unwrap();
    check("odd_name", &build_in(folder, &source, &[]));
    fs::remove_file(folder.join("src/bad\nname.rs")).unwrap();

    fs::write(folder.join("src/other.rs"), b"// \xff\xfe").unwrap();
    check("source_not_text", &build_in(folder, &source, &[]));
}

/// A manifest and a build script for cargo are not looked at.
#[test]
fn cargo_files_have_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let marker = folder.join("ran");
    let script = format!("fn main() {{ std::fs::write({marker:?}, \"x\").unwrap(); }}");
    write(
        folder,
        &[
            ("Cargo.toml", "[dependencies]\nevil = \"1\"\n"),
            ("build.rs", &script),
        ],
    );
    let said = build_in(folder, &answering("\"\""), &["build-wall=20s"]);
    assert!(said.starts_with("exit code 0"), "{said}");
    assert!(!marker.exists());
}

#[test]
fn bombs_end_within_their_bounds() {
    let consts = format!(
        "#![allow(long_running_const_eval)]\nconst N: u64 = {{ let mut n = 0_u64; while n < u64::MAX {{ n += 1; }} n }};\n{}",
        answering("N.to_string()")
    );
    let folder = tempfile::tempdir().unwrap();
    check(
        "const_bomb",
        &cut(&build_in(folder.path(), &consts, &["build-wall=2s"])),
    );

    let names: String = (0..40).map(|_| "$($x)* $($x)* ").collect();
    let macros = format!(
        "macro_rules! bomb {{ ($($x:tt)*) => {{ bomb!({names}) }}; }}\nbomb!(a b c);\n{}",
        answering("\"\"")
    );
    let folder = tempfile::tempdir().unwrap();
    let said = build_in(
        folder.path(),
        &macros,
        &["build-wall=5s", "build-memory=1GiB"],
    );
    assert!(
        said.contains("limit `build-") || said.contains("recursion limit"),
        "{}",
        cut(&said)
    );
    assert!(said.starts_with("exit code 1"), "{}", cut(&said));
}

fn cut(text: &str) -> String {
    text.chars().take(600).collect()
}

#[test]
fn too_many_files_and_too_many_words_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &[("prompts/a.txt", "a"), ("prompts/b.txt", "b")],
    );
    let source = answering("\"\"");
    check(
        "many_files",
        &build_in(folder.path(), &source, &["source-files=2"]),
    );
    let mistakes: String = (0..500)
        .map(|n| format!("fn f{n}() {{ missing{n}() }}\n"))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let said = build_in(
        folder.path(),
        &format!("{source}{mistakes}"),
        &["build-output=2KiB"],
    );
    assert!(
        said.len() < 3_000 && said.contains("cut: see the limit `build-output`"),
        "{said}"
    );
}

/// A source file that would fill the memory is refused before it is read.
#[test]
fn a_huge_source_file_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        &[("harness.toml", MANIFEST), ("src/lib.rs", "")],
    );
    let file = fs::File::create(folder.path().join("src/lib.rs")).unwrap();
    file.set_len(200 << 20).unwrap();
    check("huge_source", &say(folder.path(), &["build", "."]));
}

#[test]
fn the_manifest_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, &[("src/lib.rs", "")]);
    check("no_manifest", &say(folder, &["build", "."]));
    for (name, manifest) in [
        (
            "manifest_unknown_key",
            format!("{MANIFEST}[dependencies]\nserde = \"1\"\n"),
        ),
        ("manifest_contract", MANIFEST.replace("0.1", "0.7")),
        (
            "manifest_name",
            MANIFEST.replace("candidate", "../candidate"),
        ),
    ] {
        write(folder, &[("harness.toml", &manifest)]);
        check(name, &say(folder, &["build", "."]));
    }
    fs::remove_file(folder.join("src/lib.rs")).unwrap();
    check("no_source", &say(folder, &["build", "."]));
}

#[test]
fn a_harness_without_an_entry_point_is_refused() {
    check("no_entry_point", &build("pub fn run() {}\n"));
}
