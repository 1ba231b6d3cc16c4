//! The command line. It parses, wires the libraries together and prints; the work is theirs.

mod cli;
mod commands;
mod context;
mod download;
mod evaluation;
mod failure;
mod hub;
mod local_model;
mod model;
mod ports;
mod printer;
mod server;
mod settings;
mod tasks;
mod training;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser as _;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Started as a helper of itself: nothing else may happen first.
    if let Some(code) = whale_runtime::roles::run(&arguments) {
        return code;
    }
    let cli = cli::Cli::parse();
    settings::start_log(cli.verbose);
    match commands::execute(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
