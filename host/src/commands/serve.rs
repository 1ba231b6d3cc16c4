//! `serve`: an OpenAI-compatible server around a local model.

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use anyhow::anyhow;
use tokio::signal::unix::{SignalKind, signal};
use whale_lm::EngineConfig;

use crate::{
    cli::Serve,
    context::{self, Context},
    failure::{CommandResult, Failure},
    model, printer,
    server::{self, Key, Metrics, Server},
    settings,
};

pub(crate) fn execute(context: &Context, arguments: &Serve) -> CommandResult {
    let key = settings::server_key();
    if !arguments.host.is_loopback() && key.is_none() {
        let open = anyhow!(
            "`--host {}` lets other machines in, and there is no key",
            arguments.host
        );
        return Err(Failure::user(open).hint(format!(
            "set `{}` to the key that clients must send",
            settings::SERVER_KEY
        )));
    }
    if let Some(folder) = arguments
        .adapters
        .as_ref()
        .filter(|folder| !folder.is_dir())
    {
        return Err(Failure::user(anyhow!(
            "`--adapters {}` is no folder",
            folder.display()
        )));
    }
    let defaults = EngineConfig::default();
    let config = EngineConfig {
        sequences: arguments
            .sequences
            .map_or(defaults.sequences, |n| n as usize),
        waiting: arguments.queue.map_or(defaults.waiting, |n| n as usize),
        memory: arguments
            .memory
            .map_or(defaults.memory, |mib| (mib as usize) << 20),
        threads: arguments.threads.map(|n| n as usize),
        context: arguments.context.map(|n| n as usize),
        ..defaults
    };
    let engine = Arc::new(model::engine(
        context,
        &arguments.model,
        &arguments.local,
        config,
    )?);
    let server = Server {
        name: model::short_name(&arguments.model),
        adapter: arguments.local.adapter_name(),
        adapters: arguments.adapters.clone(),
        key: key.as_deref().map(Key::new),
        metrics: Metrics::default(),
        engine,
    };
    let runtime = context::runtime()?;
    runtime.block_on(async {
        let listener = server::listen(SocketAddr::new(arguments.host, arguments.port)).await?;
        let address = listener.local_addr().map_err(|error| {
            Failure::infrastructure(anyhow::Error::new(error).context("the address is not known"))
        })?;
        let stop = told_to_stop()?;
        printer::line(&format!("serving `{}` at http://{address}/v1", server.name));
        server.run(listener, stop).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Ends when the process is told to: by SIGTERM, or by Ctrl-C.
fn told_to_stop() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let failed = |error| {
        Failure::infrastructure(anyhow::Error::new(error).context("signals can't be heard"))
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping; running requests may end");
    })
}
