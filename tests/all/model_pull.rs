//! `model pull`, from a hub of our own.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::Path as Route,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures::StreamExt as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::{net::TcpListener, runtime::Runtime};

use crate::{server::tiny_model, support};

const COMMIT: &str = "0123abc";

/// A hub with one repository. The first transfer of the weights breaks off in the middle.
struct Hub {
    address: String,
    _runtime: Runtime,
}

fn hub(hash: Option<&str>) -> Hub {
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let names = [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    let siblings = names.map(|name| {
        let bytes = fs::read(tiny_model().join(name)).unwrap();
        let own = hash.map_or_else(|| format!("{:x}", Sha256::digest(&bytes)), str::to_owned);
        let lfs = (name == "model.safetensors").then(|| json!({ "sha256": own }));
        json!({ "rfilename": name, "size": bytes.len(), "lfs": lfs })
    });
    let evil = json!({ "rfilename": "../../evil.safetensors", "size": 1 });
    let all: Vec<_> = siblings.into_iter().chain([evil]).collect();
    let about = json!({ "sha": COMMIT, "siblings": all, "cardData": { "license": "mit" } });
    let broke = Arc::new(AtomicBool::new(false));
    let file = move |Route((commit, name)): Route<(String, String)>, headers: HeaderMap| {
        let broke = Arc::clone(&broke);
        async move { send(&commit, &name, &headers, &broke) }
    };
    let router = Router::new()
        .route(
            "/api/models/tiny/llama/revision/main",
            get(async move || Json(about)),
        )
        .route("/tiny/llama/resolve/{commit}/{name}", get(file));
    runtime.spawn(async { axum::serve(listener, router).await });
    Hub {
        address,
        _runtime: runtime,
    }
}

fn send(commit: &str, name: &str, headers: &HeaderMap, broke: &AtomicBool) -> Response {
    assert_eq!(commit, COMMIT);
    let Ok(bytes) = fs::read(tiny_model().join(name)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let range = headers
        .get("range")
        .map(|range| range.to_str().unwrap().to_owned());
    let from: usize = range.as_deref().map_or(0, |range| {
        range
            .trim_start_matches("bytes=")
            .trim_end_matches('-')
            .parse()
            .unwrap()
    });
    if name == "model.safetensors" && !broke.swap(true, Ordering::SeqCst) {
        let half = bytes[..bytes.len() / 2].to_vec();
        // The half is on its way before the end.
        let pieces = futures::stream::iter([Ok(half), Err("broken off")]).then(async |piece| {
            tokio::time::sleep(Duration::from_millis(100)).await;
            piece
        });
        return Body::from_stream(pieces).into_response();
    }
    let status = if from > 0 {
        StatusCode::PARTIAL_CONTENT
    } else {
        StatusCode::OK
    };
    (status, bytes[from..].to_vec()).into_response()
}

fn pull(hub: &Hub, cache: &Path) -> String {
    let arguments = ["model", "pull", "tiny/llama"];
    let mut command = support::whale(cache, &arguments);
    command
        .env("WHALE_CACHE", cache)
        .env("HF_ENDPOINT", &hub.address)
        .env_remove("HF_TOKEN");
    support::transcript(&command.output().unwrap()).replace(&hub.address, "[hub]")
}

#[test]
fn a_transfer_that_broke_off_goes_on_and_the_hash_is_checked() {
    let cache = tempfile::tempdir().unwrap();
    let hub = hub(None);
    let first = pull(&hub, cache.path());
    assert!(first.starts_with("exit code 3"), "{first}");
    assert!(!cache.path().join("models/llama").exists());
    let partial = cache
        .path()
        .join("models/llama.partial/model.safetensors.partial");
    assert!(fs::metadata(partial).unwrap().len() > 0);
    let second = pull(&hub, cache.path());
    assert!(second.starts_with("exit code 0"), "{second}");
    let place = cache.path().join("models/llama");
    let weights = |folder: &Path| fs::read(folder.join("model.safetensors")).unwrap();
    assert!(weights(&place) == weights(&tiny_model()));
    assert!(!cache.path().join("evil.safetensors").exists());
    let mut list = support::whale(cache.path(), &["model", "list"]);
    let list = support::transcript(&list.env("WHALE_CACHE", cache.path()).output().unwrap());
    assert!(list.contains("llama"), "{list}");
}

#[test]
fn weights_with_another_hash_are_refused_and_removed() {
    let cache = tempfile::tempdir().unwrap();
    let hub = hub(Some(&"0".repeat(64)));
    pull(&hub, cache.path());
    let second = pull(&hub, cache.path());
    assert!(
        second.starts_with("exit code 3") && second.contains("SHA-256"),
        "{second}"
    );
    let folder = cache.path().join("models/llama.partial");
    assert!(!folder.join("model.safetensors").exists());
    assert!(!folder.join("model.safetensors.partial").exists());
}

#[test]
fn names_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["nothing", "../x", "a/b/c", "a/..", "a/"] {
        let said = support::say(folder.path(), &["model", "pull", name]);
        assert!(said.starts_with("exit code 2"), "{name}: {said}");
    }
}
