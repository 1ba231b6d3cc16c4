//! Everything that is read from the environment, in one place.

use std::{io::IsTerminal as _, path::PathBuf};

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Where toolchain, models, native code and builds are kept.
const CACHE: &str = "WHALE_CACHE";
/// What is logged, as `tracing` filters are written.
const LOG: &str = "WHALE_LOG";
/// The key of an OpenAI-compatible server.
const KEY: &str = "OPENAI_API_KEY";
/// The key that clients of `serve` must send.
pub(crate) const SERVER_KEY: &str = "WHALE_API_KEY";
/// The model hub's address, and a key for it.
const HUB: &str = "HF_ENDPOINT";
const HUB_TOKEN: &str = "HF_TOKEN";
/// A folder with files of data sets, instead of where they are published.
const DATA: &str = "WHALE_DATA";

/// The folder for everything that is kept between runs.
pub(crate) fn cache() -> Result<PathBuf, Failure> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = variable(CACHE)
        .map(PathBuf::from)
        .or_else(|| variable("XDG_CACHE_HOME").map(|base| PathBuf::from(base).join("whale")))
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache/whale")));
    folder.ok_or_else(|| {
        Failure::user(anyhow::anyhow!(
            "there is no place for a cache: `HOME` is not set"
        ))
        .hint(format!("set `{CACHE}` to a folder"))
    })
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The key for a model's server.
pub(crate) fn openai_key() -> Option<String> {
    text(KEY)
}

/// The key that clients of this server must send.
pub(crate) fn server_key() -> Option<String> {
    text(SERVER_KEY)
}

/// The model hub's address.
pub(crate) fn hub() -> String {
    let address = text(HUB).unwrap_or_else(|| "https://huggingface.co".to_owned());
    address.trim_end_matches('/').to_owned()
}

/// The key for the model hub.
pub(crate) fn hub_token() -> Option<String> {
    text(HUB_TOKEN)
}

/// A folder with files of data sets.
pub(crate) fn data() -> Option<PathBuf> {
    text(DATA).map(PathBuf::from)
}

/// Candle's own threads spin while they wait for each other, which costs more than they bring where
/// our kernels do most of the work. How many there are is read from the environment when the first is
/// started, so the program begins anew with one, unless the user has said how many.
pub(crate) fn calm_candle() {
    use std::os::unix::process::CommandExt as _;

    const THREADS: &str = "CANDLE_NUM_THREADS";
    if std::env::var_os(THREADS).is_some() {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        // It only comes back where it could not be done, and then all goes on as it is.
        let _ = std::process::Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(THREADS, "1")
            .exec();
    }
}

/// Logs to stderr: nothing but warnings, more with `--verbose`, or what `WHALE_LOG` says.
pub(crate) fn start_log(verbose: bool) {
    let default = if verbose {
        "whale_host=debug,whale_runtime=debug,whale_lm=debug"
    } else {
        "warn"
    };
    let filter = EnvFilter::try_from_env(LOG).unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
