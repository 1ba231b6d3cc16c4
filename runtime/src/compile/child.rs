//! The compiling process: reads a request and a module, writes what came of it and native code.

use std::io::{Read as _, Write as _};

use serde::{Deserialize, Serialize};
use wasmtime::component::Component;

use super::{Purpose, engine};
use crate::{
    Limits, executor,
    gate::{self, Kind, Refused, Shape},
    jail::{self, Policy, Resources},
    roles::RoleResult,
    sandbox::check_types,
};

#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) purpose: Purpose,
    pub(super) limits: Limits,
    pub(super) unsafe_no_jail: bool,
}

type Answer = Result<Shape, Refused>;

/// A header's length, the header, and the rest.
fn with_header(header: &impl Serialize, rest: &[u8]) -> Vec<u8> {
    let header = postcard::to_allocvec(header).unwrap_or_default();
    let length = (header.len() as u32).to_le_bytes();
    [&length, &*header, rest].concat()
}

fn split_header<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<(T, &'a [u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (header, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((postcard::from_bytes(header).ok()?, rest))
}

pub(super) fn write_request(request: &Request, wasm: &[u8]) -> Vec<u8> {
    with_header(request, wasm)
}

pub(super) fn read_answer(bytes: &[u8]) -> Option<(Answer, &[u8])> {
    split_header(bytes)
}

pub(crate) fn child() -> RoleResult {
    // The request is the host's own; the module behind it is read as bytes and looked at only
    // once the jail is closed.
    let mut input = Vec::new();
    std::io::stdin().lock().read_to_end(&mut input)?;
    let (request, wasm) = split_header::<Request>(&input).ok_or("the request is cut short")?;
    let resources = Resources {
        cpu_seconds: Some(request.limits.compile_wall.div_ceil(1000) * 4),
        // The interpreter is run for its snapshot, which reserves address space for its memory.
        address_space: (request.purpose != Purpose::Executor)
            .then_some(request.limits.compile_memory),
        file_bytes: None,
        descriptors: Some(32),
    };
    let policy = Policy {
        unsafe_no_jail: request.unsafe_no_jail,
        ..Policy::compute(resources)
    };
    jail::enter(&policy)?;

    let (answer, artifact) = match request.purpose {
        Purpose::Executor => {
            let artifact = executor::prepare(wasm)?;
            let shape = Shape {
                kind: Kind::Core,
                bytes: wasm.len() as u64,
                imports: Vec::new(),
                exports: Vec::new(),
                functions: 0,
                memory_bytes: 0,
            };
            (Ok(shape), artifact)
        }
        purpose => match harness(wasm, purpose, &request.limits) {
            Ok((shape, artifact)) => (Ok(shape), artifact),
            Err(refused) => (Err(refused), Vec::new()),
        },
    };
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&with_header(&answer, &artifact))?;
    stdout.flush()?;
    Ok(())
}

fn harness(wasm: &[u8], purpose: Purpose, limits: &Limits) -> Result<(Shape, Vec<u8>), Refused> {
    let shape = gate::check(wasm, limits)?;
    let component = match shape.kind {
        Kind::Component => wasm.to_vec(),
        Kind::Core => {
            let component = gate::componentise(wasm)?;
            gate::check(&component, limits)?;
            component
        }
    };
    let misfit = |error: wasmtime::Error| Refused::Contract {
        message: format!("{error:#}"),
    };
    if purpose == Purpose::CheckOnly {
        return Ok((shape, Vec::new()));
    }
    let engine = engine::engine(purpose, limits.stack).map_err(misfit)?;
    let component = Component::new(&engine, &component).map_err(misfit)?;
    check_types(&engine, &component).map_err(misfit)?;
    let artifact = component.serialize().map_err(misfit)?;
    Ok((shape, artifact))
}
