//! What the tests share: the program, guests, a sandbox of our own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use whale_runtime::{
    Limits,
    compile::Cache,
    process::Program,
    sandbox::{Config, Sandbox},
};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

pub(crate) const WHALE: &str = env!("CARGO_BIN_EXE_whale-host");

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// A harness of the project.
pub(crate) fn harness(name: &str) -> PathBuf {
    root().join("guest-harnesses").join(name)
}

/// The program, in this folder.
pub(crate) fn whale(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(WHALE);
    command
        .current_dir(folder)
        .args(arguments)
        .env_remove("OPENAI_API_KEY");
    command.env_remove("RUST_BACKTRACE").env_remove("WHALE_LOG");
    command
}

/// Exit code, stdout and stderr, as a snapshot shows them.
pub(crate) fn transcript(output: &Output) -> String {
    let code = output
        .status
        .code()
        .map_or("killed".to_owned(), |code| code.to_string());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("exit code {code}\n----- stdout\n{out}\n----- stderr\n{err}")
}

/// Runs the program and returns its transcript.
pub(crate) fn say(folder: &Path, arguments: &[&str]) -> String {
    transcript(&whale(folder, arguments).output().unwrap())
}

/// Builds a harness of the project into this folder.
pub(crate) fn build(name: &str, folder: &Path) -> PathBuf {
    let module = folder.join(name).with_extension("wasm");
    let source = harness(name);
    let built = whale(folder, &["build"])
        .arg(source)
        .arg("-o")
        .arg(&module)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", transcript(&built));
    module
}

/// Compares with the snapshot of this name, after what differs from run to run is taken out.
#[track_caller]
pub(crate) fn check(name: &str, transcript: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (pattern, name) in [
        (r"/tmp/\.tmp\w+", "[folder]"),
        (r"\.tmp\w{6}\b", "[temporary]"),
        (r"at byte \d{3,}", "at byte [offset]"),
        (r"\b[0-9a-f]{64}\b", "[digest]"),
        (r"\d+\.\d\d s\b", "[time]"),
        (r"`[^`]*/models/", "`[cache]/models/"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:[port]"),
    ] {
        settings.add_filter(pattern, name);
    }
    settings.bind(|| insta::assert_snapshot!(name, transcript));
}

/// The cache that the set-up filled.
pub(crate) fn cache() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    variable("WHALE_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|base| base.join("whale")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/whale")))
        .unwrap()
}

/// A sandbox of this process's own, with the program as its helper.
pub(crate) fn sandbox(workers: usize, limits: &Limits) -> Sandbox {
    Sandbox::new(Config {
        program: Program::new(PathBuf::from(WHALE)),
        cache: Cache::open(cache().join("native")).unwrap(),
        workers,
        episodes_per_worker: 64,
        stack: limits.stack,
        unsafe_no_jail: false,
    })
}

/// Limits with some set.
pub(crate) fn limits(settings: &[&str]) -> Limits {
    let mut limits = Limits::default();
    settings
        .iter()
        .for_each(|setting| limits.set(setting).unwrap());
    limits
}

/// A core module from text, with the component type of the contract's world.
pub(crate) fn core_guest(text: &str) -> Vec<u8> {
    let mut module = wat::parse_str(text).unwrap();
    embed(&mut module, "harness");
    module
}

/// Writes the component type of the contract into a core module.
pub(crate) fn embed(module: &mut Vec<u8>, world: &str) {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root().join("harness-sdk/wit")).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    embed_component_metadata(module, &resolve, world, StringEncoding::UTF8).unwrap();
}

/// Writes files into a folder.
pub(crate) fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}
