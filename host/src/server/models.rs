//! `/v1/models`, and what this server does not have.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use serde_json::{Value, json};

use super::{Fault, Server};

impl Server {
    fn model(&self, name: &str, root: Option<&str>, hash: &str) -> Value {
        json!({
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "whale",
            "root": root.unwrap_or(name),
            "parent": root,
            "sha256": hash,
            "max_model_len": self.engine.context(),
        })
    }

    fn models(&self) -> Vec<Value> {
        let base = self.model(&self.name, None, self.engine.model().hash());
        let adapters = self.engine.adapters().into_iter();
        let adapters = adapters.filter(|(name, _)| Some(name) != self.adapter.as_ref());
        let adapters = adapters.map(|(name, hash)| self.model(&name, Some(&self.name), &hash));
        std::iter::once(base).chain(adapters).collect()
    }

    /// The adapter behind a model's name; the model itself where none.
    pub(super) fn adapter_of(&self, name: &str) -> Result<Option<String>, Fault> {
        if name == self.name {
            return Ok(self.adapter.clone());
        }
        let known = self
            .engine
            .adapters()
            .into_iter()
            .any(|(adapter, _)| adapter == name);
        if known {
            Ok(Some(name.to_owned()))
        } else {
            Err(Fault::no_model(name))
        }
    }
}

/// All of them.
pub(super) async fn list(State(server): State<Arc<Server>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": server.models() }))
}

/// One of them.
pub(super) async fn one(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Fault> {
    let model = server
        .models()
        .into_iter()
        .find(|model| model["id"] == name.as_str());
    model.map(Json).ok_or_else(|| Fault::no_model(&name))
}

/// There are none.
pub(super) async fn no_embeddings() -> Fault {
    Fault::not_here("this server generates text; it gives no embeddings")
}
