//! What the host's executable does when it is started as a helper of itself.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command, process::ExitCode};

use nix::sys::{prctl, signal::Signal};

use crate::{
    compile, executor,
    jail::{self, JailError, Policy, Support},
    sandbox,
};

/// The first argument of an executable that is started in a role.
pub const FLAG: &str = "__role";

/// What a helper process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Enters the jail of a policy and becomes another program.
    Jail,
    /// Says what the kernel offers for a jail.
    Probe,
    /// Checks a module and compiles it to native code.
    Compile,
    /// Runs episodes.
    Worker,
    /// Runs programs that models wrote.
    Executor,
}

impl Role {
    const ALL: [Self; 5] = [
        Self::Jail,
        Self::Probe,
        Self::Compile,
        Self::Worker,
        Self::Executor,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Jail => "jail",
            Self::Probe => "probe",
            Self::Compile => "compile",
            Self::Worker => "worker",
            Self::Executor => "executor",
        }
    }
}

/// Plays a role if the arguments name one; a host calls this first, with its arguments after its
/// own name, and returns the exit code if there is one.
#[must_use]
pub fn run(arguments: &[OsString]) -> Option<ExitCode> {
    let [flag, name, rest @ ..] = arguments else {
        return None;
    };
    if flag != FLAG {
        return None;
    }
    // A helper is nothing without its host, and goes with the thread that started it: of a host's
    // runtime, which lives as long as the host.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let role = Role::ALL.into_iter().find(|role| name == role.name());
    close_inherited();
    let result = match role {
        Some(Role::Jail) => exec(rest),
        Some(Role::Probe) => probe(),
        Some(Role::Compile) => compile::child(),
        Some(Role::Worker) => sandbox::worker(),
        Some(Role::Executor) => executor::worker(),
        None => Err("no such role".into()),
    };
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&*error);
            ExitCode::from(if error.is::<JailError>() {
                EXIT_JAIL
            } else {
                EXIT_ROLE
            })
        }
    })
}

/// The exit code of a role that failed.
pub(crate) const EXIT_ROLE: u8 = 70;
/// The exit code of a role whose jail is not to be had.
pub(crate) const EXIT_JAIL: u8 = 71;

pub(crate) type RoleResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A role's standard error is read by the host, which says it in its own way.
fn say(error: &dyn std::error::Error) {
    use std::io::Write as _;

    let _ = write!(std::io::stderr(), "{error}");
}

/// `POLICY PROGRAM ARGUMENTS…`: the policy as JSON.
fn exec(arguments: &[OsString]) -> RoleResult {
    let [policy, program, rest @ ..] = arguments else {
        return Err("the jail role takes a policy and a program".into());
    };
    let policy: Policy = serde_json::from_slice(policy.as_encoded_bytes())?;
    jail::enter(&policy)?;
    Err(Command::new(program).args(rest).exec().into())
}

fn probe() -> RoleResult {
    // The answer is opened before the jail closes.
    let stdout = std::io::stdout();
    serde_json::to_writer(stdout, &Support::probe())?;
    Ok(())
}

/// Closes what the parent left open for anyone: a helper has its three standard streams.
#[allow(
    unsafe_code,
    reason = "no safe interface closes descriptors that nobody in here owns"
)]
fn close_inherited() {
    // SAFETY: this is the first thing that the process does, with one thread and before any file is
    // opened, so that no descriptor above 2 belongs to anything in this program.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}
