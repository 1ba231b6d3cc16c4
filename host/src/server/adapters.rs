//! Loading and unloading adapters, by the addresses that vLLM has for them.

use std::{
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Fault, Server, request::Body};

#[derive(Deserialize)]
pub(super) struct Load {
    lora_name: String,
    /// Relative to the folder that the server was started with.
    lora_path: PathBuf,
}

#[derive(Deserialize)]
pub(super) struct Unload {
    lora_name: String,
}

/// The longest name of an adapter.
const LONGEST_NAME: usize = 128;

/// Loads an adapter from the folder that the server's owner chose, and from nowhere else.
pub(super) async fn load(
    State(server): State<Arc<Server>>,
    Body(load): Body<Load>,
) -> Result<Json<Value>, Fault> {
    let Some(base) = server.adapters.clone() else {
        return Err(Fault::forbidden(
            "this server loads no adapters: start it with `--adapters DIR`",
        ));
    };
    let name = load.lora_name;
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(Fault::setting(
            "lora_name",
            "a name is 1 to 128 bytes of plain text",
        ));
    }
    if name == server.name || Some(&name) == server.adapter.as_ref() {
        return Err(Fault::setting(
            "lora_name",
            format!("`{name}` is the model itself"),
        ));
    }
    let engine = Arc::clone(&server.engine);
    // Reading and probing take a while.
    let loaded = tokio::task::spawn_blocking(move || {
        let folder = inside(&base, &load.lora_path)?;
        engine.load_adapter(&name, &folder).map_err(Fault::from)?;
        let hash = engine
            .adapters()
            .into_iter()
            .find(|(known, _)| *known == name);
        Ok::<_, Fault>(json!({ "id": name, "sha256": hash.map(|(_, hash)| hash) }))
    });
    let loaded = loaded
        .await
        .map_err(|_| Fault::from(whale_lm::LmError::Stopped))?;
    Ok(Json(loaded?))
}

/// Forgets an adapter.
pub(super) async fn unload(
    State(server): State<Arc<Server>>,
    Body(unload): Body<Unload>,
) -> Result<Json<Value>, Fault> {
    if Some(&unload.lora_name) == server.adapter.as_ref() {
        return Err(Fault::no_model(&unload.lora_name));
    }
    server.engine.unload_adapter(&unload.lora_name)?;
    Ok(Json(json!({ "id": unload.lora_name })))
}

/// The folder `path` in `base`, links followed and seen not to lead out.
fn inside(base: &Path, path: &Path) -> Result<PathBuf, Fault> {
    let refused = || {
        Fault::setting(
            "lora_path",
            "it must name a folder in the server's `--adapters`",
        )
    };
    if !path
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
    {
        return Err(refused());
    }
    let base = base.canonicalize().map_err(|_| refused())?;
    let folder = base.join(path).canonicalize().map_err(|_| refused())?;
    if folder.starts_with(&base) && folder != base {
        Ok(folder)
    } else {
        Err(refused())
    }
}
