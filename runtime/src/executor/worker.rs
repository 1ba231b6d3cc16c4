//! A process of the executor: jailed, one program at a time, each on a fresh copy of the started
//! interpreter.

use std::{
    io::{Read as _, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
};

use serde::{Serialize, de::DeserializeOwned};
use wasmtime::{Engine, InstancePre, Linker, Module, Store, Trap};

use super::{
    protocol::{Hello, Job, Said},
    wasi::{self, Run},
};
use crate::{
    compile::{
        Purpose,
        engine::{EXECUTOR_STACK, engine},
    },
    contract::Status,
    jail,
    roles::RoleResult,
    sandbox::encode,
};

/// For what the interpreter's stack needs around it.
const STACK_MARGIN: usize = 8 << 20;

pub(crate) fn worker() -> RoleResult {
    let mut stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let Some(hello) = read::<Hello>(&mut stream)? else {
        return Ok(());
    };
    jail::enter(&hello.policy)?;
    let engine = engine(Purpose::Executor, 0)?;
    let module = deserialize(&engine, &hello.artifact)?;
    let mut linker = Linker::new(&engine);
    wasi::define(&mut linker)?;
    wasi::define_absent(&mut linker, &module)?;
    let interpreter = linker.instantiate_pre(&module)?;
    send(&mut stream, &Said::Ready)?;

    let serving = std::thread::Builder::new()
        .stack_size(EXECUTOR_STACK + STACK_MARGIN)
        .spawn(move || -> RoleResult {
            while let Some(job) = read::<Job>(&mut stream)? {
                let status = run(&interpreter, job, stream.try_clone()?)?;
                send(&mut stream, &Said::Ended(status))?;
            }
            Ok(())
        })?;
    serving
        .join()
        .unwrap_or_else(|_| Err("the executor's thread panicked".into()))
}

fn run(
    interpreter: &InstancePre<Run>,
    job: Job,
    mut stream: UnixStream,
) -> wasmtime::Result<Status> {
    let state = Run::of_job(job, move |fd, bytes| {
        let bytes = bytes.to_vec();
        send(
            &mut stream,
            &if fd == 1 {
                Said::Stdout(bytes)
            } else {
                Said::Stderr(bytes)
            },
        )
    });
    let mut store = Store::new(interpreter.module().engine(), state);
    store.limiter(|run| run);
    let outcome = interpreter.instantiate(&mut store).and_then(|instance| {
        instance
            .get_typed_func::<(), u32>(&mut store, "execute")?
            .call(&mut store, ())
    });
    Ok(match (outcome, store.data()) {
        (Ok(0), _)
        | (
            Err(_),
            Run {
                exited: Some(0), ..
            },
        ) => Status::Ok,
        (
            _,
            Run {
                ended: Some(status),
                ..
            },
        ) => *status,
        (Ok(_), _)
        | (
            Err(_),
            Run {
                exited: Some(_), ..
            },
        ) => Status::Error,
        (Err(error), _) => {
            let deep = matches!(error.downcast_ref(), Some(Trap::StackOverflow));
            let message = if deep {
                "RecursionError: the interpreter's stack overflowed\n".to_owned()
            } else {
                format!("the interpreter failed: {}\n", error.root_cause())
            };
            // Through the same sink, so that the bound on output holds.
            let _ = store.data_mut().say(&message);
            Status::Error
        }
    })
}

fn send(stream: &mut UnixStream, said: &impl Serialize) -> std::io::Result<()> {
    let mut frame = Vec::new();
    encode(said, &mut frame)?;
    stream.write_all(&frame)
}

/// The next frame from the host, or nothing once it is gone.
fn read<T: DeserializeOwned>(
    stream: &mut UnixStream,
) -> Result<Option<T>, Box<dyn std::error::Error + Send + Sync>> {
    let mut length = [0; 4];
    if stream.read_exact(&mut length).is_err() {
        return Ok(None);
    }
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(Some(postcard::from_bytes(&frame)?))
}

#[allow(unsafe_code, reason = "native code is trusted by whoever loads it")]
fn deserialize(engine: &Engine, path: &std::path::Path) -> wasmtime::Result<Module> {
    // SAFETY: the file was written by this program's own compiling process, into a folder that
    // belongs to this user and is closed to others, and is named by a digest of what made it.
    unsafe { Module::deserialize_file(engine, path) }
}
