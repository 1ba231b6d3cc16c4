//! Set-up, tests, demo and benchmarks of this repository: `cargo xtask --help`.

mod bench;
mod command;
mod demo;
mod paths;
mod setup;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Set-up, tests, demo and benchmarks of this repository")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Set up what is missing: the compiler for guests, the SDK, the Python interpreter, the model
    Setup,
    /// Set up what is missing and run every check and every test
    Test(test::Options),
    /// Set up what is missing, build, and answer a maths question with a small real model
    Demo,
    /// Measure, against others in the same run
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Setup => setup::all(),
        Task::Test(options) => test::run(&options),
        Task::Demo => demo::run(),
        Task::Bench(options) => bench::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            command::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
