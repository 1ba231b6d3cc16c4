//! The ports that commands give to episodes.

use std::{path::Path, sync::Arc};

use whale_runtime::{
    executor::Executor,
    ports::{CodeExecutor, SearchIndex},
    sandbox::Sandbox,
};
use whale_search::{Index, Server};
use whale_tasks::task::SearchSettings;

use crate::{
    context::{self, Context, SET_UP},
    failure::Failure,
};

/// The executor for Python, or nothing where the set-up has not built its interpreter.
pub(crate) async fn executor(
    context: &Context,
    sandbox: &Sandbox,
    jobs: usize,
) -> Result<Option<Arc<dyn CodeExecutor>>, Failure> {
    let guest = context.python();
    if !guest.exists() {
        tracing::warn!(
            "no code executor: `{}` is missing; {SET_UP}",
            guest.display()
        );
        return Ok(None);
    }
    let processes = context::processors().min(jobs);
    let executor = Executor::prepare(
        context.program.clone(),
        sandbox.compiler(),
        guest,
        processes,
        context.unsafe_no_jail,
    );
    let executor = executor
        .await
        .map_err(|error| Failure::infrastructure(error).hint(SET_UP))?;
    Ok(Some(Arc::new(executor)))
}

/// What a task's harnesses search.
pub(crate) fn search(
    settings: Option<&SearchSettings>,
    folder: &Path,
) -> Result<Option<Arc<dyn SearchIndex>>, Failure> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    if let Some(url) = &settings.url {
        return Ok(Some(Arc::new(Server::new(url).map_err(Failure::user)?)));
    }
    let Some(index) = &settings.index else {
        return Ok(None);
    };
    let index = Index::open(&folder.join(index)).map_err(|error| {
        Failure::user(error).hint("`whale-host index build PASSAGES -o FOLDER` makes one")
    })?;
    Ok(Some(Arc::new(index)))
}
