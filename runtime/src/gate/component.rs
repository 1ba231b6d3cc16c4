//! From a core module to a component, and what a component must be.

use std::sync::OnceLock;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::{Refused, Shape, module::check_interface};

const ADAPTER: &str = include_str!("preview1.wat");
const HARNESS_WIT: &str = include_str!("../../../harness-sdk/wit/harness.wit");
const SANDBOX_WIT: &str = include_str!("../../wit/sandbox.wit");

pub(super) fn check_world(shape: &Shape) -> Result<(), Refused> {
    for import in &shape.imports {
        check_interface(import, import, true)?;
    }
    if !shape.exports.iter().any(|export| export == "run") {
        return Err(Refused::World {
            exports: shape.exports.clone(),
        });
    }
    Ok(())
}

/// Turns a core module that was made against the contract into a component, with the adapter for
/// what it imports of WASI.
///
/// # Errors
/// When it was not made against the contract.
pub fn componentise(module: &[u8]) -> Result<Vec<u8>, Refused> {
    let misfit = |message: String| Refused::Contract { message };
    let (_, metadata) = wit_component::metadata::decode(module)
        .map_err(|error| misfit(format!("its component type can't be read: {error:#}")))?;
    let world = &metadata.resolve.worlds[metadata.world];
    if !world
        .exports
        .keys()
        .any(|key| matches!(key, wit_parser::WorldKey::Name(name) if name == "run"))
    {
        return Err(misfit(
            "it says of no function that it is the entry point `run`; was it built against the \
             SDK, with `harness!(…)`?"
                .to_owned(),
        ));
    }
    let adapter = adapter()
        .as_ref()
        .map_err(|message| misfit(message.clone()))?;
    ComponentEncoder::default()
        .module(module)
        .and_then(|encoder| encoder.adapter("wasi_snapshot_preview1", adapter))
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| misfit(format!("{error:#}")))
}

/// The adapter as a module with its component type, made once a process.
fn adapter() -> &'static Result<Vec<u8>, String> {
    static ADAPTED: OnceLock<Result<Vec<u8>, String>> = OnceLock::new();
    ADAPTED.get_or_init(|| {
        let mut module = wat::parse_str(ADAPTER).map_err(|error| error.to_string())?;
        embed(&mut module, "adapter").map_err(|error| format!("{error:#}"))?;
        Ok(module)
    })
}

/// Writes the component type of a world of ours into a core module.
fn embed(module: &mut Vec<u8>, world: &str) -> anyhow::Result<()> {
    let mut resolve = Resolve::default();
    resolve.push_str("harness.wit", HARNESS_WIT)?;
    let package = resolve.push_str("sandbox.wit", SANDBOX_WIT)?;
    let world = resolve.select_world(&[package], Some(world))?;
    embed_component_metadata(module, &resolve, world, StringEncoding::UTF8)
}
