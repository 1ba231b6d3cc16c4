//! Child processes: how they are started, bounded, killed and reaped.

use std::{
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::{Instant, timeout_at},
};

use crate::roles::Role;

/// How long a killed child may take to be gone before it is left to the system.
const REAP: Duration = Duration::from_secs(5);

/// The program that plays the roles of [`crate::roles`]: the host's own executable.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// Takes the path of an executable that calls [`crate::roles::run`].
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// A command for the role: empty environment, own process group, killed when dropped.
    #[must_use]
    pub fn command(&self, role: Role) -> Command {
        let mut command = Command::new(&self.path);
        command
            .arg(crate::roles::FLAG)
            .arg(role.name())
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

/// Bounds on a child that is run to its end.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How long it may take.
    pub wall: Duration,
    /// How many bytes of its stdout are kept; more ends it.
    pub stdout: usize,
    /// How many bytes of its stderr are kept; more is dropped.
    pub stderr: usize,
}

/// Why a child was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// It ran past its wall clock.
    Wall,
    /// It wrote more to stdout than it may.
    Output,
}

/// A child that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status; of a killed one, what the system says.
    pub status: ExitStatus,
    /// What was kept of its stdout.
    pub stdout: Vec<u8>,
    /// What was kept of its stderr.
    pub stderr: Vec<u8>,
    /// Whether stderr was longer than what was kept.
    pub stderr_cut: bool,
    /// Why it was killed, if it was.
    pub killed: Option<Killed>,
}

/// Runs a child to its end with this input, within bounds; its whole process group is gone when
/// this returns.
///
/// # Errors
/// When it could not be started or waited for.
pub async fn run(mut command: Command, input: &[u8], bounds: Bounds) -> io::Result<Finished> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let group = child.id();
    let deadline = Instant::now() + bounds.wall;
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("a child was started without its pipes"));
    };
    let feed = async move {
        // A child that ends before it has read everything says why by its status.
        let _ = stdin.write_all(input).await;
        drop(stdin);
        Ok::<_, io::Error>(())
    };
    // Outside of what the clock may end, so that what was said until then is kept.
    let (mut out, mut err) = (Collected::default(), Collected::default());
    let collected = timeout_at(deadline, async {
        tokio::try_join!(
            feed,
            collect(stdout, bounds.stdout, Overflow::Stop, &mut out),
            collect(stderr, bounds.stderr, Overflow::Drop, &mut err),
        )
    })
    .await;
    let mut killed = match collected {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => {
            end_group(group);
            return Err(error);
        }
        Err(_) => Some(Killed::Wall),
    };
    if out.cut {
        killed = Some(Killed::Output);
    }
    if killed.is_some() {
        end_group(group);
    }
    let status = match timeout_at(deadline.max(Instant::now() + REAP), child.wait()).await {
        Ok(status) => status?,
        Err(_) => {
            killed = Some(Killed::Wall);
            end_group(group);
            child.wait().await?
        }
    };
    // What the child itself left behind, such as a linker, goes with it.
    end_group(group);
    Ok(Finished {
        status,
        stdout: out.bytes,
        stderr: err.bytes,
        stderr_cut: err.cut,
        killed,
    })
}

/// Kills and reaps a child with its whole process group.
pub async fn end(child: &mut Child) {
    end_group(child.id());
    let _ = child.start_kill();
    let _ = tokio::time::timeout(REAP, child.wait()).await;
}

fn end_group(group: Option<u32>) {
    if let Some(group) = group.and_then(|id| i32::try_from(id).ok()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Stop,
    Drop,
}

#[derive(Default)]
struct Collected {
    bytes: Vec<u8>,
    cut: bool,
}

async fn collect(
    mut from: impl AsyncRead + Unpin,
    most: usize,
    overflow: Overflow,
    collected: &mut Collected,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let room = most - collected.bytes.len();
        collected.bytes.extend_from_slice(&buffer[..read.min(room)]);
        if read > room {
            collected.cut = true;
            if overflow == Overflow::Stop {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str, stdout: usize) -> Finished {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        let bounds = Bounds {
            wall: Duration::from_millis(500),
            stdout,
            stderr: 8,
        };
        run(command, b"", bounds).await.unwrap()
    }

    #[tokio::test]
    async fn what_was_said_before_the_clock_ended_it_is_kept() {
        let finished = shell("echo out; echo error >&2; sleep 30", 64).await;
        assert_eq!(finished.killed, Some(Killed::Wall));
        assert_eq!(finished.stdout, b"out\n");
        assert_eq!(finished.stderr, b"error\n");
    }

    #[tokio::test]
    async fn output_is_bounded() {
        let finished = shell("echo 12345678; sleep 30", 4).await;
        assert_eq!(finished.killed, Some(Killed::Output));
        assert_eq!(finished.stdout, b"1234");
        let finished = shell("echo 0123456789 >&2; exit 3", 4).await;
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!(
            (&*finished.stderr, finished.stderr_cut),
            (&b"01234567"[..], true)
        );
    }
}
