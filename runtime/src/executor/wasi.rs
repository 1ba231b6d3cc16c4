//! What the interpreter sees of a system: no files, a clock and randomness of the call's seed, a
//! standard input, and outputs that go to the host as they are written.

use std::io::{Seek as _, Write};

use wasmtime::{
    Caller, Extern, ExternType, FuncType, Linker, Memory, Module, ResourceLimiter, Result, Val,
    ValType, bail,
};

use crate::{contract::Status, random::Random};

/// Error numbers of WASI preview 1.
const SUCCESS: i32 = 0;
const BAD_DESCRIPTOR: i32 = 8;
const NOT_SUPPORTED: i32 = 52;
const NO_SEEK: i32 = 70;

/// Nanoseconds between two looks at the clock: time goes on for a program that waits for it.
const TICK: u64 = 50_000;
const EPOCH: u64 = 1_750_000_000_000_000_000;

/// One call's state.
pub(super) struct Run {
    pub(super) source: Vec<u8>,
    pub(super) seed: u64,
    stdin: std::io::Cursor<Vec<u8>>,
    random: Random,
    clock: u64,
    memory: u64,
    output_left: u64,
    sink: Sink,
    /// Why it was ended, if a bound did.
    pub(super) ended: Option<Status>,
    /// The code that it exited with.
    pub(super) exited: Option<u32>,
}

/// Takes what is written to a stream, which is 1 or 2.
type Outlet = Box<dyn FnMut(i32, &[u8]) -> std::io::Result<()> + Send>;

/// Where output goes.
enum Sink {
    /// Kept: while the interpreter starts.
    Kept(Vec<u8>),
    /// Sent on at once.
    Sent(Outlet),
}

impl Run {
    pub(super) fn initialising() -> Self {
        Self {
            source: Vec::new(),
            seed: 0,
            stdin: std::io::Cursor::default(),
            random: Random::new(0),
            clock: EPOCH,
            memory: u64::MAX,
            output_left: u64::MAX,
            sink: Sink::Kept(Vec::new()),
            ended: None,
            exited: None,
        }
    }

    pub(super) fn of_job(
        job: super::protocol::Job,
        send: impl FnMut(i32, &[u8]) -> std::io::Result<()> + Send + 'static,
    ) -> Self {
        Self {
            source: job.source.into_bytes(),
            seed: job.seed,
            stdin: std::io::Cursor::new(job.stdin.into_bytes()),
            random: Random::new(job.seed),
            clock: EPOCH + job.seed % 86_400 * 1_000_000_000,
            memory: job.memory,
            output_left: job.output,
            sink: Sink::Sent(Box::new(send)),
            ended: None,
            exited: None,
        }
    }

    pub(super) fn stderr_text(&self) -> String {
        match &self.sink {
            Sink::Kept(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Sink::Sent(_) => String::new(),
        }
    }

    fn write(&mut self, stream: i32, bytes: &[u8]) -> Result<()> {
        let room = usize::try_from(self.output_left).unwrap_or(usize::MAX);
        let kept = &bytes[..bytes.len().min(room)];
        self.output_left -= kept.len() as u64;
        match &mut self.sink {
            Sink::Kept(all) => all.write_all(kept)?,
            Sink::Sent(send) => send(stream, kept)?,
        }
        if kept.len() < bytes.len() {
            self.ended = Some(Status::Output);
            bail!("the program printed more than it may");
        }
        Ok(())
    }

    /// Adds a message of ours to the program's standard error.
    pub(super) fn say(&mut self, message: &str) -> Result<()> {
        self.write(2, message.as_bytes())
    }

    fn tick(&mut self) -> u64 {
        self.clock += TICK;
        self.clock
    }
}

impl ResourceLimiter for Run {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool> {
        if desired as u64 > self.memory {
            self.ended = Some(Status::Memory);
            bail!("the program needs more memory than it may have");
        }
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool> {
        Ok(desired <= 1_000_000)
    }
}

type Call<'a> = Caller<'a, Run>;

/// The guest's memory and the state next to it.
fn parts<'a>(caller: &'a mut Call<'_>) -> Result<(&'a mut [u8], &'a mut Run)> {
    let memory = memory(caller)?;
    Ok(memory.data_and_store_mut(caller))
}

fn memory(caller: &mut Call<'_>) -> Result<Memory> {
    match caller.get_export("memory") {
        Some(Extern::Memory(memory)) => Ok(memory),
        _ => bail!("the interpreter exports no memory"),
    }
}

fn slice(memory: &mut [u8], at: u32, length: u32) -> Result<&mut [u8]> {
    let at = at as usize;
    match memory.get_mut(at..at.saturating_add(length as usize)) {
        Some(slice) => Ok(slice),
        None => bail!("the interpreter named memory that it does not have"),
    }
}

fn put(memory: &mut [u8], at: u32, bytes: &[u8]) -> Result<()> {
    slice(memory, at, u32::try_from(bytes.len())?)?.copy_from_slice(bytes);
    Ok(())
}

fn word(memory: &mut [u8], at: u32) -> Result<u32> {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(slice(memory, at, 4)?);
    Ok(u32::from_le_bytes(bytes))
}

fn long(memory: &mut [u8], at: u32) -> Result<u64> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(slice(memory, at, 8)?);
    Ok(u64::from_le_bytes(bytes))
}

/// Defines what the interpreter imports and this system has.
pub(super) fn define(linker: &mut Linker<Run>) -> Result<()> {
    linker.func_wrap(
        "executor",
        "source",
        |mut caller: Call<'_>, to: u32, room: u32| {
            let (memory, run) = parts(&mut caller)?;
            let length = run.source.len().min(room as usize);
            put(memory, to, &run.source[..length])?;
            Ok(u32::try_from(run.source.len())?)
        },
    )?;
    linker.func_wrap("executor", "seed", |caller: Call<'_>| caller.data().seed)?;

    let wasi = "wasi_snapshot_preview1";
    for sizes in ["args_sizes_get", "environ_sizes_get"] {
        linker.func_wrap(
            wasi,
            sizes,
            |mut caller: Call<'_>, count: u32, bytes: u32| {
                let (memory, _) = parts(&mut caller)?;
                put(memory, count, &[0; 4])?;
                put(memory, bytes, &[0; 4])?;
                Ok(SUCCESS)
            },
        )?;
    }
    for list in ["args_get", "environ_get"] {
        linker.func_wrap(wasi, list, |_: u32, _: u32| SUCCESS)?;
    }
    linker.func_wrap(wasi, "sched_yield", || SUCCESS)?;
    linker.func_wrap(
        wasi,
        "clock_res_get",
        |mut caller: Call<'_>, _: u32, to: u32| {
            put(parts(&mut caller)?.0, to, &1_000_u64.to_le_bytes())?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(
        wasi,
        "clock_time_get",
        |mut caller: Call<'_>, _: u32, _: u64, to: u32| {
            let (memory, run) = parts(&mut caller)?;
            put(memory, to, &run.tick().to_le_bytes())?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(
        wasi,
        "random_get",
        |mut caller: Call<'_>, to: u32, length: u32| {
            let (memory, run) = parts(&mut caller)?;
            for chunk in slice(memory, to, length)?.chunks_mut(8) {
                chunk.copy_from_slice(&run.random.next().to_le_bytes()[..chunk.len()]);
            }
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(
        wasi,
        "fd_fdstat_get",
        |mut caller: Call<'_>, fd: u32, to: u32| {
            if fd > 2 {
                return Ok(BAD_DESCRIPTOR);
            }
            let mut status = [0; 24];
            status[0] = kind(fd);
            // May be read and written.
            status[8] = 66;
            put(parts(&mut caller)?.0, to, &status)?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(
        wasi,
        "fd_filestat_get",
        |mut caller: Call<'_>, fd: u32, to: u32| {
            if fd > 2 {
                return Ok(BAD_DESCRIPTOR);
            }
            // Of no size and no date.
            let mut status = [0; 64];
            status[16] = kind(fd);
            put(parts(&mut caller)?.0, to, &status)?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(wasi, "fd_seek", |fd: u32, _: i64, _: u32, _: u32| {
        if fd > 2 { BAD_DESCRIPTOR } else { NO_SEEK }
    })?;
    linker.func_wrap(wasi, "fd_write", write)?;
    linker.func_wrap(wasi, "fd_read", read)?;
    linker.func_wrap(wasi, "poll_oneoff", sleep)?;
    linker.func_wrap(
        wasi,
        "proc_exit",
        |mut caller: Call<'_>, code: u32| -> Result<()> {
            caller.data_mut().exited = Some(code);
            bail!("the program exited")
        },
    )?;
    Ok(())
}

/// Answers every other function of WASI that a module imports with "not supported" or, where a
/// descriptor is named, with "bad descriptor".
pub(super) fn define_absent(linker: &mut Linker<Run>, module: &Module) -> Result<()> {
    for import in module.imports() {
        let ExternType::Func(ty) = import.ty() else {
            continue;
        };
        if import.module() != "wasi_snapshot_preview1" || is_defined(import.name()) {
            continue;
        }
        let code = if import.name().starts_with("fd_") {
            BAD_DESCRIPTOR
        } else {
            NOT_SUPPORTED
        };
        let ty = FuncType::new(module.engine(), ty.params(), [ValType::I32]);
        linker.func_new(import.module(), import.name(), ty, move |_, _, results| {
            results[0] = Val::I32(code);
            Ok(())
        })?;
    }
    Ok(())
}

/// What a standard stream is. The output is a terminal, so that each line is written when it is
/// printed and none is lost with the program; the others are none, so that nobody is prompted and
/// tracebacks are not coloured.
fn kind(fd: u32) -> u8 {
    const CHARACTER_DEVICE: u8 = 2;
    const STREAM: u8 = 6;

    if fd == 1 { CHARACTER_DEVICE } else { STREAM }
}

fn is_defined(name: &str) -> bool {
    [
        "args_get",
        "args_sizes_get",
        "clock_res_get",
        "clock_time_get",
        "environ_get",
        "environ_sizes_get",
        "fd_fdstat_get",
        "fd_filestat_get",
        "fd_read",
        "fd_seek",
        "fd_write",
        "poll_oneoff",
        "proc_exit",
        "random_get",
        "sched_yield",
    ]
    .contains(&name)
}

fn write(mut caller: Call<'_>, fd: i32, buffers: u32, count: u32, written: u32) -> Result<i32> {
    if !(1..=2).contains(&fd) {
        return Ok(BAD_DESCRIPTOR);
    }
    let (memory, run) = parts(&mut caller)?;
    let mut sum = 0_u32;
    for index in 0..count {
        let at = buffers.wrapping_add(index.wrapping_mul(8));
        let (from, length) = (word(memory, at)?, word(memory, at.wrapping_add(4))?);
        run.write(fd, slice(memory, from, length)?)?;
        sum = sum.wrapping_add(length);
    }
    put(memory, written, &sum.to_le_bytes())?;
    Ok(SUCCESS)
}

fn read(mut caller: Call<'_>, fd: i32, buffers: u32, count: u32, read: u32) -> Result<i32> {
    if fd != 0 {
        return Ok(BAD_DESCRIPTOR);
    }
    let (memory, run) = parts(&mut caller)?;
    let before = run.stdin.stream_position()?;
    for index in 0..count {
        let at = buffers.wrapping_add(index.wrapping_mul(8));
        let (to, length) = (word(memory, at)?, word(memory, at.wrapping_add(4))?);
        let taken = std::io::Read::read(&mut run.stdin, slice(memory, to, length)?)?;
        if taken < length as usize {
            break;
        }
    }
    let sum = u32::try_from(run.stdin.stream_position()? - before)?;
    put(memory, read, &sum.to_le_bytes())?;
    Ok(SUCCESS)
}

/// `time.sleep`: the call's own clock goes on, and nobody waits.
fn sleep(mut caller: Call<'_>, wanted: u32, events: u32, count: u32, happened: u32) -> Result<i32> {
    const SUBSCRIPTION: u32 = 48;
    const CLOCK: u8 = 0;
    const ABSOLUTE: u8 = 1;

    let (memory, run) = parts(&mut caller)?;
    for index in 0..count {
        let at = wanted.wrapping_add(index.wrapping_mul(SUBSCRIPTION));
        let kind = slice(memory, at.wrapping_add(8), 1)?[0];
        if kind != CLOCK {
            continue;
        }
        let user_data = long(memory, at)?;
        let timeout = long(memory, at.wrapping_add(24))?;
        let absolute = slice(memory, at.wrapping_add(40), 1)?[0] & ABSOLUTE != 0;
        let until = if absolute {
            timeout
        } else {
            run.clock.saturating_add(timeout)
        };
        run.clock = run.clock.max(until);
        let mut event = [0; 32];
        event[..8].copy_from_slice(&user_data.to_le_bytes());
        put(memory, events, &event)?;
        put(memory, happened, &1_u32.to_le_bytes())?;
        return Ok(SUCCESS);
    }
    Ok(NOT_SUPPORTED)
}
