//! Seccomp: filters of system calls. A call that is not left fails as if the kernel had no such
//! call, which the C library knows how to live with.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use serde::{Deserialize, Serialize};

use super::JailError;

/// Which system calls are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Syscalls {
    /// Memory, threads of its own, clocks, and reading and writing what is open or may be opened.
    Compute,
    /// Everything that a compiler and a linker use, but no sockets, no tracing of other processes,
    /// no mounts, no namespaces, no kernel interfaces with a history of holes.
    Compiler,
}

pub(super) fn restrict(syscalls: Syscalls) -> Result<(), JailError> {
    let failed = |error: &dyn std::fmt::Display| JailError::Syscalls(error.to_string());
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    let forbidden = SeccompAction::Errno(libc::EPERM as u32);
    let (calls, listed, unlisted) = match syscalls {
        Syscalls::Compute => (
            compute().map_err(|e| failed(&e))?,
            SeccompAction::Allow,
            absent,
        ),
        Syscalls::Compiler => (all(DANGEROUS), forbidden, SeccompAction::Allow),
    };
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|e| failed(&e))?;
    let filter = SeccompFilter::new(calls, unlisted, listed, arch).map_err(|e| failed(&e))?;
    let program = BpfProgram::try_from(filter).map_err(|e| failed(&e))?;
    apply_filter(&program).map_err(|e| failed(&e))
}

type Calls = BTreeMap<i64, Vec<SeccompRule>>;

fn all(calls: &[libc::c_long]) -> Calls {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn compute() -> Result<Calls, seccompiler::Error> {
    let mut calls = all(COMPUTE);
    #[cfg(target_arch = "x86_64")]
    calls.extend(all(COMPUTE_X86));
    let is_thread = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64),
        libc::CLONE_THREAD as u64,
    )?;
    calls.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is_thread])?]);
    Ok(calls)
}

const COMPUTE: &[libc::c_long] = &[
    // Descriptors.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_ftruncate,
    // Files: Landlock says which.
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_faccessat,
    // An anonymous file in memory: the image that instances are copied from.
    libc::SYS_memfd_create,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // Threads, signals, time.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_uname,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
];

/// Older forms that only this architecture has.
#[cfg(target_arch = "x86_64")]
const COMPUTE_X86: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_arch_prctl,
];

const DANGEROUS: &[libc::c_long] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_sethostname,
    libc::SYS_acct,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_quotactl,
    libc::SYS_personality,
    libc::SYS_setsid,
    libc::SYS_setpgid,
];
