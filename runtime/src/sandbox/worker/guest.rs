//! One episode in its own store: limits, instantiation, the run, and what it came to.

use tokio::sync::oneshot;
use wasmtime::{AsContextMut as _, Store, Trap, WasmBacktrace};

use super::{
    super::protocol::{Ended, How, Start},
    state::EpisodeState,
};
use crate::{
    Limits,
    contract::{Field, SandboxedPre, Task},
};

/// Fuel after which an episode lets others run.
const SLICE: u64 = 2_000_000;

pub(super) async fn run(
    pre: &SandboxedPre<EpisodeState>,
    start: Start,
    state: EpisodeState,
    cancelled: oneshot::Receiver<()>,
) -> Ended {
    let mut store = Store::new(pre.engine(), state);
    let limits = start.limits.clone();
    let how = tokio::select! {
        biased;
        _ = cancelled => How::Cancelled,
        how = episode(pre, start, &mut store) => how,
    };
    let mut state = store.into_data();
    let how = match how {
        How::Answered(text) | How::GaveUp(text) if text.len() as u64 > limits.answer_bytes => {
            How::Limit(limits.hit("answer-bytes"))
        }
        how => how,
    };
    let (stdout, stderr) = state.take_output();
    Ended {
        how,
        used: state.used,
        stdout,
        stderr,
    }
}

async fn episode(
    pre: &SandboxedPre<EpisodeState>,
    start: Start,
    store: &mut Store<EpisodeState>,
) -> How {
    let limits = start.limits;
    store.limiter(|state| state);
    store.set_hostcall_fuel(usize::try_from(limits.call_bytes).unwrap_or(usize::MAX));
    if let Err(error) = arm(store, limits.fuel_start, true) {
        return How::NotLoaded(error.to_string());
    }
    let instance = match pre.instantiate_async(store.as_context_mut()).await {
        Ok(instance) => instance,
        Err(error) => return failure(store, &error, "fuel-start", &limits),
    };
    store.data_mut().used.fuel_start = spent(store, limits.fuel_start);
    if start.probe {
        return How::Answered(String::new());
    }
    if let Err(error) = arm(store, limits.fuel, false) {
        return How::NotLoaded(error.to_string());
    }
    let fields = start
        .task
        .fields
        .into_iter()
        .map(|(name, value)| Field { name, value })
        .collect();
    let task = Task {
        id: start.task.id,
        prompt: start.task.prompt,
        fields,
    };
    let result = instance.call_run(store.as_context_mut(), &task).await;
    store.data_mut().used.fuel = spent(store, limits.fuel);
    match result {
        Ok(Ok(answer)) => How::Answered(answer.text),
        Ok(Err(message)) => How::GaveUp(message),
        Err(error) => failure(store, &error, "fuel", &limits),
    }
}

fn arm(store: &mut Store<EpisodeState>, fuel: u64, slices: bool) -> wasmtime::Result<()> {
    store.set_fuel(fuel)?;
    if slices {
        store.fuel_async_yield_interval(Some(SLICE))?;
    }
    Ok(())
}

fn spent(store: &Store<EpisodeState>, given: u64) -> u64 {
    given - store.get_fuel().unwrap_or_default().min(given)
}

/// Names what ended a guest. The trap gives the reason, never the fuel that is left.
fn failure(
    store: &mut Store<EpisodeState>,
    error: &wasmtime::Error,
    fuel: &str,
    limits: &Limits,
) -> How {
    let state = store.data_mut();
    if let Some(hit) = state.hit.take() {
        return How::Limit(hit);
    }
    if let Some(code) = state.exited {
        return How::Trapped(format!(
            "it exited with code {code} instead of returning an answer"
        ));
    }
    let in_guest = error.downcast_ref::<WasmBacktrace>().is_some();
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => How::Limit(limits.hit(fuel)),
        Some(Trap::StackOverflow) => How::Limit(limits.hit("stack")),
        Some(Trap::MemoryOutOfBounds) => How::Trapped(
            "memory access out of bounds; a deep recursion shows like this too, since a guest's \
             own stack lies at the bottom of its memory"
                .to_owned(),
        ),
        Some(Trap::UnreachableCodeReached) => {
            How::Trapped("it panicked or aborted; its stderr may say why".to_owned())
        }
        Some(trap) => How::Trapped(trap.to_string()),
        // The engine has no type for this one: the size of what is lifted out of a guest.
        None if error
            .root_cause()
            .to_string()
            .contains("fuel allocated for hostcalls") =>
        {
            How::Limit(limits.hit(if in_guest {
                "call-bytes"
            } else {
                "answer-bytes"
            }))
        }
        None => How::Trapped(error.root_cause().to_string()),
    }
}
