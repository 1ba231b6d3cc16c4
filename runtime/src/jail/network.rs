//! A network namespace with nothing in it.

use nix::sched::{CloneFlags, unshare};

/// Moves this process into an empty network, and says whether the kernel allowed it. It may not
/// inside some containers; the filter of system calls forbids sockets all the same.
pub(super) fn leave() -> bool {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).is_ok()
        || unshare(CloneFlags::CLONE_NEWNET).is_ok()
}
