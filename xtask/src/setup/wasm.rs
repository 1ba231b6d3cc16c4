//! The compiler for `wasm32-wasip1`: the target of this toolchain if it is installed or can be, else
//! the distribution's compiler with a standard library that is built once.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::tools::packages;

use crate::{
    command::{self, say},
    paths,
};

pub(crate) const TARGET: &str = "wasm32-wasip1";
/// Keeps the set-up from asking rustup.
const NO_RUSTUP: &str = "WASM_NO_RUSTUP";
/// The distribution's compiler, its sources, and a C library.
const PACKAGES: [&str; 3] = ["rustc-web", "rust-web-src", "wasi-libc"];
const PACKAGED_RUSTC: &str = "/usr/bin/rustc";
const PACKAGED_LIBC: &str = "/usr/lib/wasm32-wasi";
/// The C library's parts that the standard library links.
const LIBC_PARTS: [&str; 3] = ["crt1-command.o", "crt1-reactor.o", "libc.a"];

/// A compiler for guests.
pub(crate) struct Wasm {
    /// In words, for people.
    pub(crate) origin: String,
    pub(crate) version: String,
    pub(crate) rustc: PathBuf,
    pub(crate) sysroot: Option<PathBuf>,
    pub(crate) linker: PathBuf,
    pub(crate) link_args: Vec<String>,
    /// What compiler and linker read and run.
    pub(crate) folders: Vec<PathBuf>,
}

impl Wasm {
    /// Makes a cargo command build for guests with this compiler.
    pub(crate) fn apply(&self, cargo: &mut Command, flags: &str) {
        let mut flags = flags.to_owned();
        if let Some(sysroot) = &self.sysroot {
            flags.push_str(&format!(" --sysroot={}", sysroot.display()));
        }
        for argument in &self.link_args {
            flags.push_str(&format!(" -Clink-arg={argument}"));
        }
        cargo
            .env("RUSTC", &self.rustc)
            .env("CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS", flags.trim())
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .args(["--target", TARGET]);
    }
}

pub(crate) fn find(cache: &Path) -> Result<Wasm> {
    if env::var_os(NO_RUSTUP).is_none()
        && let Some(wasm) = of_rustup()?
    {
        return Ok(wasm);
    }
    of_distribution(cache)
}

fn own_sysroot() -> Result<PathBuf> {
    command::output(Command::new("rustc").args(["--print", "sysroot"])).map(PathBuf::from)
}

/// The linker for WebAssembly that comes with this toolchain, or with LLVM.
fn linker() -> Result<PathBuf> {
    let host = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let own = own_sysroot()?
        .join("lib/rustlib")
        .join(host)
        .join("bin/rust-lld");
    let found = [own, PathBuf::from("/usr/bin/wasm-ld")]
        .into_iter()
        .find(|linker| linker.exists());
    found.context("no linker for WebAssembly: neither `rust-lld` nor `wasm-ld` is there")
}

/// The system's own libraries and loaders.
fn system_folders() -> Vec<PathBuf> {
    ["/usr/lib", "/lib", "/lib64"].map(PathBuf::from).to_vec()
}

fn of_rustup() -> Result<Option<Wasm>> {
    let sysroot = own_sysroot()?;
    let library = sysroot.join("lib/rustlib").join(TARGET).join("lib");
    if !library.exists() {
        say(&format!("asking rustup for {TARGET}"));
        let mut add = Command::new("timeout");
        add.args(["120", "rustup", "target", "add", TARGET]);
        if !command::works(&mut add) || !library.exists() {
            say("rustup has none; the distribution's packages are used");
            return Ok(None);
        }
    }
    let rustc = sysroot.join("bin/rustc");
    Ok(Some(Wasm {
        origin: format!("rustup target {TARGET}"),
        version: command::output(Command::new(&rustc).arg("--version"))?,
        rustc,
        sysroot: None,
        linker: linker()?,
        link_args: Vec::new(),
        folders: [
            vec![sysroot.join("lib"), sysroot.join("bin")],
            system_folders(),
        ]
        .concat(),
    }))
}

fn of_distribution(cache: &Path) -> Result<Wasm> {
    let version = || command::output(Command::new(PACKAGED_RUSTC).arg("--version"));
    let sources = |version: &str| {
        let number = version.split(' ').nth(1).unwrap_or_default();
        PathBuf::from(format!("/usr/src/rustc-{number}/library/std/Cargo.toml"))
    };
    let libc = Path::new(PACKAGED_LIBC).join("libc.a");
    let installed = Path::new(PACKAGED_RUSTC).exists()
        && version().is_ok_and(|version| sources(&version).exists())
        && libc.exists();
    if !installed {
        packages(&PACKAGES)?;
    }
    let version = version()?;
    let linker = linker()?;
    let shim = paths::root().join("xtask/src/setup/shim.rs");
    let key = paths::digest(&[shim.clone(), libc], &[&version, "3"])?;
    let sysroot = cache.join("sysroot").join(&key);
    if !sysroot.exists() {
        say(&format!(
            "building the standard library for {TARGET}, once ({version})"
        ));
        make_sysroot(cache, &sysroot, &shim, &linker)?;
    }
    let linker_folder = linker.ancestors().nth(4).map(Path::to_owned);
    let shim = self_contained(&sysroot).join("shim.o");
    Ok(Wasm {
        origin: "the distribution's packages".to_owned(),
        version,
        rustc: PathBuf::from(PACKAGED_RUSTC),
        sysroot: Some(sysroot),
        linker,
        link_args: vec![shim.display().to_string()],
        folders: system_folders().into_iter().chain(linker_folder).collect(),
    })
}

fn self_contained(sysroot: &Path) -> PathBuf {
    sysroot
        .join("lib/rustlib")
        .join(TARGET)
        .join("lib/self-contained")
}

fn make_sysroot(cache: &Path, sysroot: &Path, shim: &Path, linker: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(cache)?;
    let package = work.path().join("package");
    fs::create_dir_all(package.join("src"))?;
    fs::write(package.join("src/lib.rs"), "")?;
    let manifest =
        "[package]\nname = \"empty\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(package.join("Cargo.toml"), manifest)?;
    let target = work.path().join("target");
    let mut build = command::cargo();
    build
        .current_dir(&package)
        .env("RUSTC", PACKAGED_RUSTC)
        // The library's sources are the compiler's own and may use what is unstable.
        .env("RUSTC_BOOTSTRAP", "1")
        // Bitcode lets the interpreter be optimised as a whole.
        .env("RUSTFLAGS", "-Cembed-bitcode=yes")
        .env("CARGO_TARGET_DIR", &target)
        .args([
            "build",
            "--quiet",
            "--release",
            "-Zbuild-std=std,panic_abort",
            "--target",
            TARGET,
        ]);
    command::run(&mut build)?;

    let made = work.path().join("sysroot");
    let library = made.join("lib/rustlib").join(TARGET).join("lib");
    fs::create_dir_all(self_contained(&made))?;
    for entry in fs::read_dir(target.join(TARGET).join("release/deps"))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if name.ends_with(".rlib") && !name.starts_with("libempty-") {
            fs::copy(&path, library.join(name))?;
        }
    }
    for part in LIBC_PARTS {
        fs::copy(
            Path::new(PACKAGED_LIBC).join(part),
            self_contained(&made).join(part),
        )?;
    }
    let tools = made
        .join("lib/rustlib")
        .join(format!("{}-unknown-linux-gnu", env::consts::ARCH))
        .join("bin");
    fs::create_dir_all(&tools)?;
    std::os::unix::fs::symlink(linker, tools.join("rust-lld"))?;
    let mut compile = Command::new(PACKAGED_RUSTC);
    compile
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--emit",
            "obj",
            "--target",
            TARGET,
        ])
        .args(["-O", "-Cpanic=abort", "-Ccodegen-units=1", "--sysroot"])
        .arg(&made)
        .arg(shim)
        .arg("-o")
        .arg(self_contained(&made).join("shim.o"));
    command::run(&mut compile)?;
    if let Some(parent) = sysroot.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::rename(&made, sysroot).context("the new sysroot could not be put in its place")
}
