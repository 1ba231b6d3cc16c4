//! What clients may write in a request.

use std::time::Duration;

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::{StatusCode, header::CONTENT_TYPE},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use whale_lm::{Constraint, Generate, Sampling};

use super::Fault;

/// A body of JSON. Anything else is refused: so a page in a browser can't send one without asking
/// first.
pub(super) struct Body<T>(pub(super) T);

/// How long a client may take to send a body.
const SLOWEST: Duration = Duration::from_secs(30);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fault> {
        let kind = request
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("application/json")) {
            let message = "the body must be JSON: send `Content-Type: application/json`";
            return Err(Fault::status(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let bytes = tokio::time::timeout(SLOWEST, Bytes::from_request(request, state));
        let bytes = bytes.await.map_err(|_| {
            Fault::status(
                StatusCode::REQUEST_TIMEOUT,
                "the body took longer than 30 s",
            )
        })?;
        let bytes = bytes.map_err(|error| Fault::status(error.status(), error.body_text()))?;
        let parsed = serde_json::from_slice(&bytes);
        parsed
            .map(Self)
            .map_err(|error| Fault::bad(format!("the body can't be read: {error}")))
    }
}

/// What requests for chats and for raw completions share.
#[derive(Deserialize)]
pub(super) struct Common {
    pub(super) model: String,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    logit_bias: Option<Value>,
    max_tokens: Option<u64>,
    stop: Option<OneOrMany>,
    stop_token_ids: Option<Vec<u32>>,
    ignore_eos: Option<bool>,
    seed: Option<i64>,
    n: Option<u32>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    response_format: Option<ResponseFormat>,
    structured_outputs: Option<Structured>,
    /// An extension: token ids in the answer.
    return_token_ids: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: NamedSchema },
}

#[derive(Deserialize)]
struct NamedSchema {
    schema: Option<Value>,
}

/// Constraints as vLLM writes them.
#[derive(Deserialize)]
struct Structured {
    choice: Option<Vec<String>>,
    regex: Option<String>,
    json: Option<Value>,
}

/// The most replies to one request.
const REPLIES: u32 = 64;

/// How a request's answer is written.
pub(super) struct Form {
    pub(super) replies: u32,
    pub(super) streams: bool,
    pub(super) usage_in_stream: bool,
    pub(super) token_ids: bool,
}

impl Common {
    pub(super) fn form(&self) -> Result<Form, Fault> {
        let replies = self.n.unwrap_or(1);
        if !(1..=REPLIES).contains(&replies) {
            return Err(Fault::setting(
                "n",
                format!("`n` is {replies}; it must be 1 to {REPLIES}"),
            ));
        }
        let usage = self
            .stream_options
            .as_ref()
            .and_then(|options| options.include_usage);
        Ok(Form {
            replies,
            streams: self.stream.unwrap_or(false),
            usage_in_stream: usage.unwrap_or(false),
            token_ids: self.return_token_ids.unwrap_or(false),
        })
    }

    /// The generation that is asked for, but for the prompt; `room` is how long it can be.
    pub(super) fn generate(
        &self,
        max_tokens: Option<u64>,
        room: usize,
        top: usize,
    ) -> Result<Generate, Fault> {
        for (name, value) in [
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
        ] {
            if value.is_some_and(|value| value.abs() > 0.0) {
                let message = format!("`{name}` is not known here; `repetition_penalty` is");
                return Err(Fault::setting(name, message));
            }
        }
        let biased = |bias: &Value| !bias.as_object().is_some_and(serde_json::Map::is_empty);
        if self.logit_bias.as_ref().is_some_and(biased) {
            return Err(Fault::setting(
                "logit_bias",
                "`logit_bias` is not known here",
            ));
        }
        let most = max_tokens.or(self.max_tokens);
        let most = most.map_or(room, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let stops = match &self.stop {
            None => Vec::new(),
            Some(OneOrMany::One(stop)) => vec![stop.clone()],
            Some(OneOrMany::Many(stops)) => stops.clone(),
        };
        Ok(Generate {
            max_tokens: most,
            sampling: Sampling {
                temperature: self.temperature.unwrap_or(1.0),
                // -1 is vLLM's word for no bound.
                top_k: self.top_k.and_then(|k| u32::try_from(k).ok()),
                top_p: self.top_p,
                min_p: self.min_p,
                repetition_penalty: self.repetition_penalty,
            },
            stops,
            stop_ids: self.stop_token_ids.clone().unwrap_or_default(),
            ignore_end: self.ignore_eos.unwrap_or(false),
            constraint: self.constraint()?,
            seed: self.seed.map_or_else(random_seed, i64::cast_unsigned),
            top,
        })
    }

    fn constraint(&self) -> Result<Option<Constraint>, Fault> {
        let from_format = match &self.response_format {
            None | Some(ResponseFormat::Text) => None,
            Some(ResponseFormat::JsonObject) => Some(Constraint::JsonSchema(
                serde_json::json!({ "type": "object" }),
            )),
            Some(ResponseFormat::JsonSchema { json_schema }) => {
                let schema = json_schema.schema.clone().unwrap_or(Value::Bool(true));
                Some(Constraint::JsonSchema(schema))
            }
        };
        let own = self.structured_outputs.as_ref();
        let mut all: Vec<Constraint> = from_format.into_iter().collect();
        if let Some(own) = own {
            all.extend(own.choice.clone().map(Constraint::Choices));
            all.extend(own.regex.clone().map(Constraint::Regex));
            all.extend(own.json.clone().map(Constraint::JsonSchema));
        }
        if all.len() > 1 {
            return Err(Fault::setting(
                "response_format",
                "a reply can have one constraint",
            ));
        }
        Ok(all.pop())
    }
}

/// A seed for requests that bring none.
pub(super) fn random_seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    RandomState::new().build_hasher().finish()
}
