//! Every check and every test, as CI runs them.

use anyhow::Result;
use clap::Args;

use crate::{
    command::{self, say},
    paths, setup,
};

#[derive(Args)]
pub(crate) struct Options {
    /// Only tests whose name contains this
    filter: Option<String>,

    /// Do not ask for the database of advisories: for machines that may reach package registries only
    #[arg(long)]
    no_advisories: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let root = paths::root();
    if options.filter.is_none() {
        say("formatting");
        command::run(
            command::cargo()
                .current_dir(&root)
                .args(["fmt", "--all", "--check"]),
        )?;
        say("clippy");
        command::run(command::cargo().current_dir(&root).args([
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))?;
        dependencies(options.no_advisories)?;
        cuda()?;
    }
    setup::all()?;
    setup::for_tests()?;
    say("tests");
    let mut nextest = setup::nextest()?;
    // All failures in one run: a machine that is not at hand is not asked twice.
    nextest
        .current_dir(&root)
        .args(["run", "--workspace", "--no-fail-fast"]);
    command::run(nextest.args(&options.filter))
}

/// Licences, sources and duplicates always; advisories where their database can be had.
fn dependencies(no_advisories: bool) -> Result<()> {
    say("dependencies");
    let root = paths::root();
    let mut deny = setup::deny()?;
    deny.current_dir(&root).args([
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]);
    command::run(&mut deny)?;
    if no_advisories {
        say("NOT CHECKED: advisories; `--no-advisories` was given");
        return Ok(());
    }
    let mut fetch = setup::deny()?;
    if command::works(fetch.current_dir(&root).args(["fetch", "db"])) {
        let mut deny = setup::deny()?;
        return command::run(deny.current_dir(&root).args([
            "check",
            "--disable-fetch",
            "advisories",
        ]));
    }
    say("NOT CHECKED: advisories; their database can't be reached from here");
    Ok(())
}

/// The code for NVIDIA's devices compiles, kernels included. No device is needed for that, but
/// their compiler is.
fn cuda() -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        say("NOT CHECKED: the feature `cuda`; its compiler is fetched for x86-64 Linux alone");
        return Ok(());
    }
    let toolkit = setup::cuda()?;
    say("clippy with the feature `cuda` (the first time, this takes about 6 minutes on two cores)");
    let mut clippy = command::cargo();
    clippy
        .current_dir(paths::root())
        .args(["clippy", "--quiet", "--workspace"])
        .args(["--features", "whale-host/cuda", "--", "-D", "warnings"]);
    toolkit.apply(&mut clippy);
    command::run(&mut clippy)
}
