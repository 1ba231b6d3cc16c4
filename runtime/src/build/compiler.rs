//! Calls rustc in its jail and checks what it says it has read.

use std::{
    fs::{self, File},
    io,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use super::{
    BuildError, Builder,
    source::{ENTRY, Files},
};
use crate::{
    Digest, Limits,
    files::write_whole,
    jail::{Policy, Resources, Syscalls},
    process::{self, Bounds, Killed},
    roles::{EXIT_JAIL, Role},
};

/// Where a candidate is copied to and compiled: one place for each folder that candidates come from,
/// so that the compiler can build on its last time. Locked while it is used.
pub(super) struct Place {
    folder: PathBuf,
    _lock: File,
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> BuildError {
    let what = what.to_owned();
    move |error| BuildError::Io { what, error }
}

impl Place {
    pub(super) fn open(builds: &Path, candidate: &Path) -> Result<Self, BuildError> {
        let candidate = candidate
            .canonicalize()
            .map_err(failed("the harness's folder is gone"))?;
        let name = Digest::of(candidate.as_os_str().as_encoded_bytes());
        let folder = builds.join(name.short());
        let open = || -> io::Result<File> {
            for part in ["work", "out", "incremental", "temporary"] {
                fs::create_dir_all(folder.join(part))?;
            }
            let lock = File::create(folder.join("lock"))?;
            lock.lock()?;
            Ok(lock)
        };
        let lock = open().map_err(failed("the folder for builds could not be used"))?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    /// The module that was built of exactly this, if it is still there.
    pub(super) fn built(&self, key: &Digest) -> Option<Vec<u8>> {
        let known = fs::read_to_string(self.folder.join("key")).ok()?;
        (known == key.as_str())
            .then(|| fs::read(self.folder.join("built.wasm")).ok())
            .flatten()
    }

    /// Keeps a module that has passed the gate, where the compiler can't write.
    pub(super) fn keep(&self, key: &Digest, wasm: &[u8]) -> Result<(), BuildError> {
        let keep = || {
            let _ = fs::remove_file(self.folder.join("key"));
            write_whole(&self.folder.join("built.wasm"), wasm)?;
            write_whole(&self.folder.join("key"), key.as_str().as_bytes())
        };
        keep().map_err(failed("the module could not be kept"))
    }

    pub(super) fn output(&self) -> Result<Vec<u8>, BuildError> {
        fs::read(self.folder.join("out/harness.wasm"))
            .map_err(failed("the compiler left no module"))
    }

    /// Makes the copy equal to the candidate's files, touching only what differs.
    pub(super) fn stage(&self, files: &Files) -> Result<(), BuildError> {
        let stage = || {
            let work = self.folder.join("work");
            remove_others(&work, Path::new(""), files)?;
            for (path, bytes) in &files.all {
                let copy = work.join(path);
                if fs::read(&copy).ok().as_ref() != Some(bytes) {
                    if let Some(parent) = copy.parent() {
                        fs::create_dir_all(parent)?;
                    }
                    fs::write(&copy, bytes)?;
                }
            }
            let _ = fs::remove_file(self.folder.join("out/harness.wasm"));
            Ok(())
        };
        stage().map_err(failed("the harness could not be copied"))
    }
}

fn remove_others(work: &Path, inner: &Path, files: &Files) -> io::Result<()> {
    for entry in fs::read_dir(work.join(inner))? {
        let entry = entry?;
        let path = inner.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(work, &path, files)?;
        } else if !files.all.contains_key(&path) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Compiles what is staged; the warnings come back.
pub(super) async fn run(
    builder: &Builder,
    place: &Place,
    limits: &Limits,
) -> Result<String, BuildError> {
    let toolchain = &builder.toolchain;
    let out = place.folder.join("out");
    let incremental = place.folder.join("incremental");
    let temporary = place.folder.join("temporary");
    let wall = Duration::from_millis(limits.build_wall);
    let read = [
        place.folder.join("work"),
        toolchain.sdk.clone(),
        PathBuf::from("/dev/null"),
        PathBuf::from("/dev/urandom"),
        PathBuf::from("/etc/ld.so.cache"),
    ];
    let policy = Policy {
        read: read
            .into_iter()
            .chain(toolchain.dependencies.clone())
            .chain(toolchain.sysroot.clone())
            .collect(),
        execute: [toolchain.rustc.clone(), toolchain.linker.clone()]
            .into_iter()
            .chain(toolchain.folders.iter().cloned())
            .collect(),
        write: vec![out.clone(), incremental.clone(), temporary.clone()],
        syscalls: Syscalls::Compiler,
        resources: Resources {
            cpu_seconds: Some(limits.build_wall.div_ceil(1000) * 4),
            address_space: Some(limits.build_memory),
            file_bytes: Some(256 << 20),
            descriptors: Some(1024),
        },
        unsafe_no_jail: builder.unsafe_no_jail,
    };
    let mut command = builder.program.command(Role::Jail);
    command
        .arg(
            serde_json::to_string(&policy).map_err(|error| BuildError::Io {
                what: "the jail's policy could not be written".to_owned(),
                error: error.into(),
            })?,
        )
        .arg(&toolchain.rustc)
        .args([
            "--crate-name",
            "harness",
            "--crate-type",
            "cdylib",
            "--edition",
            "2024",
        ])
        .args([
            "--target",
            "wasm32-wasip1",
            "-C",
            "opt-level=1",
            "-C",
            "panic=abort",
        ])
        .args([
            "-C",
            "codegen-units=16",
            "-C",
            "strip=debuginfo",
            "--color",
            "never",
        ])
        .arg("-C")
        .arg(flag("incremental=", &incremental))
        .arg("-C")
        .arg(flag("linker=", &toolchain.linker))
        .args(
            toolchain
                .link_args
                .iter()
                .map(|argument| format!("-Clink-arg={argument}")),
        )
        .arg("--extern")
        .arg(flag("whale_harness=", &toolchain.sdk))
        .args(
            toolchain
                .dependencies
                .iter()
                .map(|folder| flag("-Ldependency=", folder)),
        )
        .args(["--emit", "link,dep-info", "--out-dir"])
        .arg(&out)
        .arg(ENTRY)
        .env("TMPDIR", &temporary)
        .current_dir(place.folder.join("work"));
    if let Some(sysroot) = &toolchain.sysroot {
        command.arg("--sysroot").arg(sysroot);
    }
    let kept = usize::try_from(limits.build_output).unwrap_or(usize::MAX);
    let bounds = Bounds {
        wall,
        stdout: 64 << 10,
        stderr: kept,
    };
    let finished = process::run(command, &[], bounds)
        .await
        .map_err(failed("the compiler could not be run"))?;

    let mut messages = String::from_utf8_lossy(&finished.stderr).into_owned();
    if finished.stderr_cut {
        messages.push_str("\n… (cut: see the limit `build-output`)\n");
    }
    if finished.killed == Some(Killed::Wall) {
        return Err(BuildError::Limit {
            hit: limits.hit("build-wall"),
            messages,
        });
    }
    if finished.status.code() == Some(i32::from(EXIT_JAIL)) {
        return Err(BuildError::Jail(messages));
    }
    if !finished.status.success() {
        let out_of_memory = finished.status.code().is_none()
            || messages.contains("memory allocation of")
            || messages.contains("LLVM ERROR: out of memory");
        return Err(if out_of_memory {
            BuildError::Limit {
                hit: limits.hit("build-memory"),
                messages,
            }
        } else {
            BuildError::Compiler { messages }
        });
    }
    let info = fs::read_to_string(out.join("harness.d"))
        .map_err(failed("the compiler did not say what it read"))?;
    check_reads(&info)?;
    Ok(messages)
}

fn flag(name: &str, path: &Path) -> std::ffi::OsString {
    let mut flag = std::ffi::OsString::from(name);
    flag.push(path);
    flag
}

/// Checks the compiler's list of what it read. The jail leaves it the toolchain's own folders, whose
/// files are no business of a candidate's.
fn check_reads(info: &str) -> Result<(), BuildError> {
    for line in info.lines() {
        if let Some(variable) = line.strip_prefix("# env-dep:") {
            let name = variable.split('=').next().unwrap_or_default();
            return Err(BuildError::ReadEnvironment {
                name: name.to_owned(),
            });
        }
        // A line `file:` for each file that was read, besides the one of the module.
        let Some(path) = line.strip_suffix(':') else {
            continue;
        };
        let inside = Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        // `include_str!("../prompts/a.txt")` in `src/lib.rs` is read as `src/../prompts/a.txt`.
        if !inside && !stays_inside(Path::new(path)) {
            return Err(BuildError::ReadOutside {
                path: path.to_owned(),
            });
        }
    }
    Ok(())
}

fn stays_inside(path: &Path) -> bool {
    let mut depth = 0_usize;
    path.components().all(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::ParentDir => {
            let inside = depth > 0;
            depth = depth.saturating_sub(1);
            inside
        }
        Component::CurDir => true,
        Component::RootDir | Component::Prefix(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(info: &str, refused: Option<&str>) {
        let error = check_reads(info).err().map(|error| error.to_string());
        assert_eq!(error.is_some(), refused.is_some(), "{error:?}");
        assert!(
            error
                .unwrap_or_default()
                .contains(refused.unwrap_or_default())
        );
    }

    #[test]
    fn only_the_candidates_own_files_may_be_read() {
        check(
            "/out/h.wasm: src/lib.rs\n\nsrc/lib.rs:\nsrc/../prompts/a.txt:\n",
            None,
        );
        check(
            "/out/h.wasm: src/lib.rs\n\n/usr/lib/os-release:\n",
            Some("/usr/lib/os-release"),
        );
        check("x: y\n\nsrc/../../../other/src/lib.rs:\n", Some("other"));
        check(
            "x: y\n\nsrc/lib.rs:\n\n# env-dep:HOME=/root\n",
            Some("`HOME`"),
        );
    }
}
