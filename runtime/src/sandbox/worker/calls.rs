//! The functions that a guest may call, each a question to the host or a small thing of its own.

use wasmtime::{
    Engine, StoreContextMut,
    component::{ComponentNamedList, Lift, Linker, LinkerInstance, Lower},
};

use super::{
    super::protocol::{HostCall, HostReply},
    state::{EpisodeState, ask},
};
use crate::contract::{self, Prompt, Request};

/// The linker of this process: built once, used for every episode.
pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<EpisodeState>> {
    let mut linker = Linker::new(engine);
    let interface = |name: &str| format!("{name}@{}", contract::VERSION);

    linker.instance(&interface("whale:harness/types"))?;

    let mut model = linker.instance(&interface("whale:harness/model"))?;
    asks(
        &mut model,
        "complete",
        |(requests,): (Vec<Request>,)| HostCall::Complete(requests),
        |reply| {
            let HostReply::Complete(results) = reply else {
                return None;
            };
            Some((results,))
        },
    )?;
    asks(
        &mut model,
        "score",
        |(prompt, continuations): (Prompt, Vec<String>)| HostCall::Score {
            prompt,
            continuations,
        },
        |reply| {
            let HostReply::Score(result) = reply else {
                return None;
            };
            Some((result,))
        },
    )?;
    asks(
        &mut model,
        "count-tokens",
        |(text,): (String,)| HostCall::CountTokens(text),
        |reply| {
            let HostReply::CountTokens(result) = reply else {
                return None;
            };
            Some((result,))
        },
    )?;
    asks(
        &mut model,
        "context-limit",
        |(): ()| HostCall::ContextLimit,
        |reply| {
            let HostReply::ContextLimit(result) = reply else {
                return None;
            };
            Some((result,))
        },
    )?;
    asks(
        &mut model,
        "remaining",
        |(): ()| HostCall::Remaining,
        |reply| {
            let HostReply::Remaining(budget) = reply else {
                return None;
            };
            Some((budget,))
        },
    )?;

    let mut search = linker.instance(&interface("whale:harness/search"))?;
    asks(
        &mut search,
        "query",
        |(text, k): (String, u32)| HostCall::Query { text, k },
        |reply| {
            let HostReply::Query(result) = reply else {
                return None;
            };
            Some((result,))
        },
    )?;
    asks(
        &mut search,
        "open",
        |(id,): (String,)| HostCall::Open(id),
        |reply| {
            let HostReply::Open(result) = reply else {
                return None;
            };
            Some((result,))
        },
    )?;

    let mut code = linker.instance(&interface("whale:harness/code"))?;
    asks(
        &mut code,
        "execute",
        |(language, source, stdin): (String, String, String)| HostCall::Execute {
            language,
            source,
            stdin,
        },
        |reply| {
            let HostReply::Execute(result) = reply else {
                return None;
            };
            Some((result,))
        },
    )?;

    let mut environment = linker.instance(&interface("whale:harness/environment"))?;
    asks(
        &mut environment,
        "observe",
        |(): ()| HostCall::Observe,
        |reply| {
            let HostReply::Observe(result) = reply else {
                return None;
            };
            Some((result,))
        },
    )?;
    asks(
        &mut environment,
        "act",
        |(text,): (String,)| HostCall::Act(text),
        |reply| {
            let HostReply::Act(result) = reply else {
                return None;
            };
            Some((result,))
        },
    )?;

    let mut log = linker.instance(&interface("whale:harness/log"))?;
    asks(
        &mut log,
        "note",
        |(key, value): (String, String)| HostCall::Note { key, value },
        |reply| {
            let HostReply::Note(result) = reply else {
                return None;
            };
            Some((result,))
        },
    )?;

    let mut system = linker.instance(&interface(contract::SYSTEM))?;
    system.func_wrap(
        "write",
        |mut store: Store<'_>, (stream, bytes): (u32, Vec<u8>)| {
            store.data_mut().write(stream, &bytes)
        },
    )?;
    system.func_wrap("random", |mut store: Store<'_>, (): ()| {
        Ok((store.data_mut().random.next(),))
    })?;
    system.func_wrap("clock", |mut store: Store<'_>, (_,): (u32,)| {
        Ok((store.data_mut().clock(),))
    })?;
    system.func_wrap(
        "exit",
        |mut store: Store<'_>, (code,): (u32,)| -> wasmtime::Result<()> {
            store.data_mut().exited = Some(code);
            Err(wasmtime::Error::msg("the guest exited"))
        },
    )?;
    Ok(linker)
}

type Store<'a> = StoreContextMut<'a, EpisodeState>;

/// Defines a function that is a question to the host.
fn asks<Parameters, Results>(
    interface: &mut LinkerInstance<'_, EpisodeState>,
    name: &str,
    call: impl Fn(Parameters) -> HostCall + Copy + Send + Sync + 'static,
    results: impl Fn(HostReply) -> Option<Results> + Copy + Send + Sync + 'static,
) -> wasmtime::Result<()>
where
    Parameters: ComponentNamedList + Lift + Send + 'static,
    Results: ComponentNamedList + Lower + Send + 'static,
{
    interface.func_wrap_async(name, move |store, parameters: Parameters| {
        Box::new(async move {
            let reply = ask(store, call(parameters)).await?;
            results(reply).ok_or_else(|| wasmtime::Error::msg("the host answered another question"))
        })
    })
}
