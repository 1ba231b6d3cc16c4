//! `replay`: a recorded episode again, without a model.

use std::process::ExitCode;

use anyhow::anyhow;
use whale_runtime::episode::{self, Record};

use crate::{
    cli::Replay,
    context::{self, Context},
    failure::{CommandResult, Failure},
    printer,
};

pub(crate) fn execute(context: &Context, arguments: &Replay) -> CommandResult {
    let record = Record::read(&arguments.trace).map_err(Failure::user)?;
    let module = match &arguments.harness {
        Some(module) => module.clone(),
        None => {
            let module = context.cache()?.module(&record.harness.digest);
            if !module.exists() {
                let error = anyhow!(
                    "the module {} is not in the cache",
                    record.harness.digest.short()
                );
                return Err(Failure::user(error).hint("name its file with `--harness FILE`"));
            }
            module
        }
    };
    let limits = &record.spec.limits;
    let sandbox = context.sandbox(1, limits)?;
    let compared = context::block_on(async {
        let harness = context.load(&sandbox, &module, limits).await?;
        let compared = episode::replay(&sandbox, &harness, &record).await;
        sandbox.close().await;
        compared.map_err(|error| context::sandbox_failure(error, &module))
    })?;
    match compared {
        Ok(()) => {
            let fuel = record.used.get("fuel").copied().unwrap_or_default();
            let calls = record.calls.len();
            printer::line(&format!(
                "identical: {calls} call{}, the outcome, the output and {fuel} fuel",
                if calls == 1 { "" } else { "s" }
            ));
            Ok(ExitCode::SUCCESS)
        }
        Err(difference) => Err(Failure::harness(anyhow!(
            "the replay differs: {difference}"
        ))),
    }
}
