//! `doctor`: what is there, what is missing, how to get it.

use std::{path::Path, process::ExitCode, time::Duration};

use serde_json::json;
use whale_runtime::{
    build::Toolchain,
    jail::Support,
    process::{self, Bounds},
    roles::Role,
};

use crate::{
    cli::Doctor,
    context::{self, Context, SET_UP},
    failure::{CommandResult, Kind},
    printer,
};

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    /// What is there, or what is missing and how to get it.
    state: Result<String, (String, String)>,
}

pub(crate) fn execute(context: &Context, arguments: &Doctor) -> CommandResult {
    let findings = vec![
        toolchain(context),
        jail(context),
        file(
            "python",
            &context.python(),
            "the interpreter of the code executor",
        ),
        file(
            "model",
            &context.models().join("smollm2-135m.gguf"),
            "the default local model",
        ),
        disk(&context.folder),
    ];
    let whole = findings.iter().all(|finding| finding.state.is_ok());
    for finding in &findings {
        let (ok, state, fix) = match &finding.state {
            Ok(state) => (true, state, None),
            Err((state, fix)) => (false, state, Some(fix)),
        };
        if arguments.json {
            let row = json!({"what": finding.what, "ok": ok, "state": state, "fix": fix});
            printer::line(&row.to_string());
            continue;
        }
        let mark = if ok { "ok     " } else { "missing" };
        printer::line(&format!(
            "{mark}  {:<9}  {}",
            finding.what,
            printer::shown(state)
        ));
        if let Some(fix) = fix {
            printer::line(&format!("{:20}{fix}", ""));
        }
    }
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(Kind::Infrastructure.code())
    })
}

fn toolchain(context: &Context) -> Finding {
    let state = Toolchain::read(&context.toolchain())
        .map(|toolchain| format!("{} ({})", toolchain.version, toolchain.origin))
        .map_err(|error| (error.to_string(), SET_UP.to_owned()));
    Finding {
        what: "toolchain",
        state,
    }
}

fn jail(context: &Context) -> Finding {
    let bounds = Bounds {
        wall: Duration::from_secs(10),
        stdout: 4096,
        stderr: 4096,
    };
    let probe = context::block_on(async {
        Ok(process::run(context.program.command(Role::Probe), &[], bounds).await)
    });
    let support = probe.ok().and_then(Result::ok);
    let support = support.and_then(|done| serde_json::from_slice::<Support>(&done.stdout).ok());
    let state = match support {
        None => Err((
            "the probe did not answer".to_owned(),
            "see `--verbose`".to_owned(),
        )),
        Some(support) => {
            let has = |there: bool| if there { "yes" } else { "no" };
            let text = format!(
                "landlock {}, seccomp {}, network namespace {}",
                has(support.landlock),
                has(support.seccomp),
                has(support.network_namespace)
            );
            if support.is_enough() {
                Ok(text)
            } else {
                let fix = "a kernel from 5.13 on with Landlock switched on (`lsm=landlock,…`)";
                Err((text, fix.to_owned()))
            }
        }
    };
    Finding {
        what: "jail",
        state,
    }
}

fn file(what: &'static str, path: &Path, is: &str) -> Finding {
    let state = match std::fs::metadata(path) {
        Ok(metadata) => Ok(format!(
            "`{}` ({} MiB)",
            path.display(),
            metadata.len() >> 20
        )),
        Err(_) => Err((format!("`{}`, {is}", path.display()), SET_UP.to_owned())),
    };
    Finding { what, state }
}

fn disk(folder: &Path) -> Finding {
    const NEEDED: u64 = 2 << 30;

    let there = folder
        .ancestors()
        .find(|folder| folder.exists())
        .unwrap_or(folder);
    let state = match nix::sys::statvfs::statvfs(there) {
        Ok(disk) => {
            let free = disk.blocks_available() * disk.fragment_size();
            let text = format!("{} MiB free in `{}`", free >> 20, folder.display());
            if free >= NEEDED {
                Ok(text)
            } else {
                Err((
                    text,
                    "make room, or set `WHALE_CACHE` to another disk".to_owned(),
                ))
            }
        }
        Err(error) => Err((
            error.to_string(),
            "set `WHALE_CACHE` to a folder".to_owned(),
        )),
    };
    Finding {
        what: "disk",
        state,
    }
}
