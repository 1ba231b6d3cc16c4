//! A server that speaks OpenAI's protocol for the engine.

mod adapters;
mod answer;
mod auth;
mod chat;
mod completions;
mod fault;
mod metrics;
mod models;
mod replies;
mod request;
mod tokens;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{get, post},
};
use tokio::net::TcpListener;
use whale_lm::Engine;

use self::fault::Fault;
pub(crate) use self::{auth::Key, metrics::Metrics};
use crate::failure::Failure;

/// What all handlers see.
pub(crate) struct Server {
    pub(crate) engine: Arc<Engine>,
    /// What clients call the model.
    pub(crate) name: String,
    /// The adapter that requests for the model itself use.
    pub(crate) adapter: Option<String>,
    /// The folder under which clients may load adapters.
    pub(crate) adapters: Option<PathBuf>,
    pub(crate) key: Option<Key>,
    pub(crate) metrics: Metrics,
}

/// The longest body of a request, in bytes.
const LONGEST_BODY: usize = 8 << 20;
/// How long running requests may go on after the server was told to stop.
const DRAIN: Duration = Duration::from_secs(30);

impl Server {
    fn router(self: Arc<Self>) -> Router {
        Router::new()
            .route("/v1/chat/completions", post(chat::handle))
            .route("/v1/completions", post(completions::handle))
            .route("/v1/models", get(models::list))
            .route("/v1/models/{name}", get(models::one))
            .route("/v1/embeddings", post(models::no_embeddings))
            .route("/v1/load_lora_adapter", post(adapters::load))
            .route("/v1/unload_lora_adapter", post(adapters::unload))
            .route("/tokenize", post(tokens::tokenize))
            .route("/detokenize", post(tokens::detokenize))
            .route("/metrics", get(metrics::show))
            .route("/health", get(|| async { "ok" }))
            .fallback(async || Fault::not_found("there is no such address"))
            .method_not_allowed_fallback(async || Fault::method())
            .layer(middleware::from_fn_with_state(
                Arc::clone(&self),
                auth::check,
            ))
            .layer(middleware::from_fn_with_state(
                Arc::clone(&self),
                metrics::count,
            ))
            .layer(DefaultBodyLimit::max(LONGEST_BODY))
            .with_state(self)
    }

    /// Serves until the process is told to stop, then lets running requests end.
    pub(crate) async fn run(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Failure> {
        let (told, mut is_told) = tokio::sync::watch::channel(false);
        let stop = async move {
            stop.await;
            let _ = told.send(true);
        };
        let server = Arc::new(self);
        let serve = axum::serve(listener, server.router()).with_graceful_shutdown(stop);
        let late = async move {
            let _ = is_told.wait_for(|told| *told).await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            served = serve.into_future() => served.map_err(|error| {
                Failure::infrastructure(anyhow::Error::new(error).context("the server stopped"))
            }),
            () = late => {
                tracing::warn!("requests that ran for {DRAIN:?} after the stop are given up");
                Ok(())
            }
        }
    }
}

/// Takes an address to serve at.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::infrastructure(
            anyhow::Error::new(error).context(format!("`{address}` can't be served at")),
        )
        .hint("`--port 0` takes a free one")
    })
}
