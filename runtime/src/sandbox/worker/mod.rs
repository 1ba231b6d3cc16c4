//! A worker process: jailed, one thread, many episodes that wait for the host.

mod calls;
mod guest;
mod state;

use std::{
    collections::HashMap,
    io::Read as _,
    os::{fd::AsFd as _, unix::net::UnixStream as StdUnixStream},
    path::PathBuf,
    rc::Rc,
    sync::Arc,
};

use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot},
};
use wasmtime::{
    Engine,
    component::{Component, Linker},
};

use super::{
    frames::{FrameReader, Outbox},
    protocol::{Ended, FromWorker, Hello, HostReply, How, ToWorker, WorkerUse},
};
use crate::{
    Digest,
    compile::{Purpose, engine::engine},
    contract::SandboxedPre,
    jail,
    roles::RoleResult,
};
use state::EpisodeState;

/// Loaded harnesses that a worker keeps.
const LOADED: usize = 64;

pub(crate) fn worker() -> RoleResult {
    let stdin = std::io::stdin();
    let stream = StdUnixStream::from(stdin.as_fd().try_clone_to_owned()?);
    let hello = read_hello(&stream)?;
    stream.set_nonblocking(true)?;
    // It makes a socket for signals, which the jail would forbid.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    jail::enter(&hello.policy)?;

    let engine = engine(Purpose::Harness, hello.stack)?;
    let linker = calls::linker(&engine)?;
    let loader = Loader {
        engine,
        linker,
        cache: hello.cache,
        loaded: HashMap::new(),
    };
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(serve(stream, loader)))
}

/// The first frame is read without a buffer, so that nothing behind it is taken.
fn read_hello(
    mut stream: &StdUnixStream,
) -> Result<Hello, Box<dyn std::error::Error + Send + Sync>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(postcard::from_bytes(&frame)?)
}

/// Whether a component has the types of the contract.
pub(crate) fn check_types(engine: &Engine, component: &Component) -> wasmtime::Result<()> {
    let linker = calls::linker(engine)?;
    SandboxedPre::new(linker.instantiate_pre(component)?).map(drop)
}

/// What the loop knows of an episode that runs.
struct Running {
    replies: mpsc::UnboundedSender<HostReply>,
    cancel: oneshot::Sender<()>,
}

async fn serve(stream: StdUnixStream, mut loader: Loader) -> RoleResult {
    let (from, to) = UnixStream::from_std(stream)?.into_split();
    let outbox = Arc::new(Outbox::default());
    outbox.send(&FromWorker::Ready)?;
    let writing = Arc::clone(&outbox);
    tokio::task::spawn_local(async move { writing.drain_to(to).await });

    let running = Rc::new(std::cell::RefCell::new(HashMap::<u64, Running>::new()));
    let mut frames = FrameReader::new(from);
    while let Some(message) = frames.next::<ToWorker>().await? {
        match message {
            ToWorker::Start(start) => {
                let episode = start.episode;
                let pre = match loader.load(&start.artifact) {
                    Ok(pre) => pre,
                    Err(error) => {
                        outbox.send(&FromWorker::Done {
                            episode,
                            ended: not_loaded(&error),
                        })?;
                        continue;
                    }
                };
                let (replies, inbox) = mpsc::unbounded_channel();
                let (cancel, cancelled) = oneshot::channel();
                running
                    .borrow_mut()
                    .insert(episode, Running { replies, cancel });
                let state = EpisodeState::new(&start, Arc::clone(&outbox), inbox);
                let (running, outbox) = (Rc::clone(&running), Arc::clone(&outbox));
                tokio::task::spawn_local(async move {
                    let ended = guest::run(&pre, *start, state, cancelled).await;
                    running.borrow_mut().remove(&episode);
                    // Without the host there is nobody to tell.
                    let _ = outbox.send(&FromWorker::Done { episode, ended });
                });
            }
            ToWorker::Reply { episode, reply } => {
                if let Some(running) = running.borrow().get(&episode) {
                    let _ = running.replies.send(reply);
                }
            }
            ToWorker::Cancel { episode } => {
                if let Some(running) = running.borrow_mut().remove(&episode) {
                    let _ = running.cancel.send(());
                }
            }
        }
    }
    Ok(())
}

fn not_loaded(error: &wasmtime::Error) -> Ended {
    Ended {
        how: How::NotLoaded(format!("{error:#}")),
        used: WorkerUse::default(),
        stdout: String::new(),
        stderr: String::new(),
    }
}

struct Loader {
    engine: Engine,
    linker: Linker<EpisodeState>,
    cache: PathBuf,
    loaded: HashMap<Digest, Rc<SandboxedPre<EpisodeState>>>,
}

impl Loader {
    fn load(&mut self, artifact: &Digest) -> wasmtime::Result<Rc<SandboxedPre<EpisodeState>>> {
        if let Some(pre) = self.loaded.get(artifact) {
            return Ok(Rc::clone(pre));
        }
        let path = self.cache.join(format!("{artifact}.native"));
        let component = deserialize(&self.engine, &path)?;
        let pre = Rc::new(SandboxedPre::new(self.linker.instantiate_pre(&component)?)?);
        if self.loaded.len() >= LOADED {
            self.loaded.clear();
        }
        self.loaded.insert(artifact.clone(), Rc::clone(&pre));
        Ok(pre)
    }
}

#[allow(unsafe_code, reason = "native code is trusted by whoever loads it")]
fn deserialize(engine: &Engine, path: &std::path::Path) -> wasmtime::Result<Component> {
    // SAFETY: the file was written by this program's own compiling process, into a folder that
    // belongs to this user and is closed to others, and is named by a digest of what made it.
    unsafe { Component::deserialize_file(engine, path) }
}
