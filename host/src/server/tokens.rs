//! `/tokenize` and `/detokenize`, by the addresses that vLLM has for them.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Fault, Server, request::Body};

#[derive(Deserialize)]
pub(super) struct Text {
    prompt: String,
}

#[derive(Deserialize)]
pub(super) struct Ids {
    tokens: Vec<u32>,
}

/// A raw prompt's token ids.
pub(super) async fn tokenize(
    State(server): State<Arc<Server>>,
    Body(text): Body<Text>,
) -> Result<Json<Value>, Fault> {
    let tokens = server.engine.model().encode_prompt(&text.prompt)?;
    let (count, context) = (tokens.len(), server.engine.context());
    Ok(Json(
        json!({ "tokens": tokens, "count": count, "max_model_len": context }),
    ))
}

/// Token ids as text.
pub(super) async fn detokenize(
    State(server): State<Arc<Server>>,
    Body(ids): Body<Ids>,
) -> Result<Json<Value>, Fault> {
    Ok(Json(
        json!({ "prompt": server.engine.model().decode(&ids.tokens)? }),
    ))
}
