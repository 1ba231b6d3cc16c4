//! Takes rights away from a process of ours, for good: files, network, system calls, resources.
//!
//! [`enter`] is called by a child at its very start, while it has one thread and has read nothing
//! that it should not trust. Nothing here needs privileges.

mod files;
mod network;
mod resources;
mod syscalls;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use resources::Resources;
pub use syscalls::Syscalls;

/// What a jailed process may still do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// Files and folders that may be read.
    pub read: Vec<PathBuf>,
    /// Files and folders that may be read and run.
    pub execute: Vec<PathBuf>,
    /// Folders that may be written.
    pub write: Vec<PathBuf>,
    /// The system calls that are left.
    pub syscalls: Syscalls,
    /// Bounds on processor time, memory and files.
    pub resources: Resources,
    /// Go on without what the kernel does not offer. Only ever set by a person's own flag.
    pub unsafe_no_jail: bool,
}

impl Policy {
    /// For a process that computes and talks over descriptors that it already has.
    #[must_use]
    pub fn compute(resources: Resources) -> Self {
        Self {
            read: Vec::new(),
            execute: Vec::new(),
            write: Vec::new(),
            syscalls: Syscalls::Compute,
            resources,
            unsafe_no_jail: false,
        }
    }
}

/// Why a jail could not be entered.
#[derive(Debug, Error)]
pub enum JailError {
    /// The kernel has no Landlock, or it is switched off.
    #[error("this kernel offers no Landlock, so that files can't be kept from the process")]
    NoLandlock,
    /// A rule of the file jail was refused.
    #[error("the file jail could not be set up: {0}")]
    Files(String),
    /// The filter of system calls was refused.
    #[error("the filter of system calls could not be set up: {0}")]
    Syscalls(String),
    /// A resource bound was refused.
    #[error("the bound on {what} could not be set to {value}: {error}")]
    Resource {
        /// What it bounds.
        what: &'static str,
        /// The value.
        value: u64,
        /// What the system said.
        error: std::io::Error,
    },
}

/// Takes the rights away. The network goes by a namespace of its own where the kernel allows one,
/// and by the filter of system calls in any case.
///
/// # Errors
/// When the kernel lacks a part, unless the policy says to go on without it.
pub fn enter(policy: &Policy) -> Result<(), JailError> {
    policy.resources.apply()?;
    network::leave();
    let waive = |result: Result<(), JailError>| match result {
        Err(_) if policy.unsafe_no_jail => Ok(()),
        other => other,
    };
    waive(files::restrict(policy))?;
    waive(syscalls::restrict(policy.syscalls))
}

/// What this kernel offers for a jail.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Support {
    /// Whether files can be kept from a process.
    pub landlock: bool,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
    /// Whether a process can have a network of its own, with nothing in it.
    pub network_namespace: bool,
}

impl Support {
    /// Whether untrusted source and wasm can be jailed here.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.landlock && self.seccomp
    }

    /// Tries every part on this process, which is of no other use afterwards.
    #[must_use]
    pub fn probe() -> Self {
        let network_namespace = network::leave();
        let policy = Policy::compute(Resources::default());
        let landlock = files::restrict(&policy).is_ok();
        let seccomp = syscalls::restrict(Syscalls::Compute).is_ok();
        Self {
            landlock,
            seccomp,
            network_namespace,
        }
    }
}
