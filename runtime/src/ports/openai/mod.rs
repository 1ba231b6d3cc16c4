//! Any server that speaks the OpenAI protocol: `/chat/completions` for conversations,
//! `/completions` for raw prompts.

mod wire;

use std::{
    fmt,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use reqwest::{Client, StatusCode, Url, header, redirect};
use serde_json::Value;
use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{ChatModel, ModelReply, ModelRequest, PortError, throttle::Throttle};
use wire::{Reply, server_message};

/// The longest body that is read.
const BODY: usize = 16 << 20;

/// A key, which no message, trace or log shows.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Takes a key.
    #[must_use]
    pub fn new(key: String) -> Self {
        Self(key)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How to reach a server.
#[derive(Clone, Debug)]
pub struct OpenAiConfig {
    /// The address before `/chat/completions`, such as `http://127.0.0.1:8000/v1`.
    pub base: String,
    /// The model's name there.
    pub model: String,
    /// The key, if the server wants one.
    pub key: Option<Secret>,
    /// Ask for the token ids that are read and written, as vLLM gives them: for training.
    pub token_ids: bool,
    /// Requests at once, at the most.
    pub concurrency: usize,
    /// How often a request is sent again.
    pub retries: u32,
    /// For the connection to stand.
    pub connect: Duration,
    /// Between two parts of a reply.
    pub idle: Duration,
    /// For one request with all its tries.
    pub total: Duration,
}

impl OpenAiConfig {
    /// The usual settings for a server.
    #[must_use]
    pub fn new(base: String, model: String, key: Option<Secret>) -> Self {
        Self {
            base,
            model,
            key,
            token_ids: false,
            concurrency: 64,
            retries: 4,
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            total: Duration::from_secs(600),
        }
    }
}

/// Why there is no client for a server.
#[derive(Debug, Error)]
pub enum OpenAiError {
    /// The address is none.
    #[error("`{base}` is no address of a server: {message}")]
    Address {
        /// What was given.
        base: String,
        /// What is wrong.
        message: String,
    },
    /// The client could not be made.
    #[error("no HTTP client could be made")]
    Client(#[from] reqwest::Error),
}

/// A model behind an OpenAI-compatible server.
#[derive(Debug)]
pub struct OpenAi {
    config: OpenAiConfig,
    base: Url,
    client: Client,
    throttle: Throttle,
    /// What requests name as the model.
    model: RwLock<String>,
}

impl OpenAi {
    /// A client for this server; nothing is sent yet.
    ///
    /// # Errors
    /// When the address is none.
    pub fn new(config: OpenAiConfig) -> Result<Self, OpenAiError> {
        let address = |message: String| OpenAiError::Address {
            base: config.base.clone(),
            message,
        };
        let base = Url::parse(&config.base).map_err(|error| address(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(address("it must start with http:// or https://".to_owned()));
        }
        let client = Client::builder()
            .connect_timeout(config.connect)
            .read_timeout(config.idle)
            // A server that sends a key elsewhere is not followed, and no environment is read.
            .redirect(redirect::Policy::none())
            .no_proxy()
            .build()?;
        let throttle = Throttle::new(config.concurrency);
        Ok(Self {
            model: RwLock::new(config.model.clone()),
            config,
            base,
            client,
            throttle,
        })
    }

    /// The model that requests name.
    pub fn model(&self) -> String {
        self.model
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Names another model of the same server from now on, such as an adapter.
    pub fn use_model(&self, name: String) {
        *self.model.write().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// Sends any request to the server and gives what it answers, as text.
    ///
    /// # Errors
    /// When the server refuses it, or fails for longer than it is tried.
    pub async fn post(
        &self,
        path: &str,
        body: &Value,
        deadline: Instant,
    ) -> Result<String, PortError> {
        let text = |bytes: &[u8]| Ok(String::from_utf8_lossy(bytes).into_owned());
        self.send(path, body, deadline, &text).await
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path.split('/'));
        }
        url
    }

    /// Sends a request until it is answered, it is refused for good, or its time is up.
    async fn send<T>(
        &self,
        path: &str,
        body: &Value,
        deadline: Instant,
        parse: &(dyn Fn(&[u8]) -> Result<T, serde_json::Error> + Sync),
    ) -> Result<T, PortError> {
        let deadline = deadline.min(Instant::now() + self.config.total);
        let mut last = String::from("no time was left for it");
        for attempt in 0..=self.config.retries {
            let place = self.throttle.enter().await;
            let answer = timeout_at(deadline, self.once(path, body, parse)).await;
            drop(place);
            let wait = match answer {
                Err(_) => {
                    last = "it did not answer in time".to_owned();
                    break;
                }
                Ok(Ok(reply)) => {
                    self.throttle.succeeded();
                    return Ok(reply);
                }
                Ok(Err(Failed::ForGood(error))) => return Err(error),
                Ok(Err(Failed::ForNow {
                    message,
                    wait,
                    busy,
                })) => {
                    if busy {
                        self.throttle.refused();
                    }
                    last = message;
                    wait
                }
            };
            let until = Instant::now() + wait.unwrap_or_else(|| backoff(attempt));
            if until >= deadline || attempt == self.config.retries {
                break;
            }
            tracing::debug!(
                attempt,
                reason = last,
                "a request to the model is sent again"
            );
            sleep_until(until).await;
        }
        Err(PortError::Infrastructure(format!(
            "the model's server failed: {last}"
        )))
    }

    async fn once<T>(
        &self,
        path: &str,
        body: &Value,
        parse: &(dyn Fn(&[u8]) -> Result<T, serde_json::Error> + Sync),
    ) -> Result<T, Failed> {
        let mut request = self.client.post(self.url(path)).json(body);
        if let Some(Secret(key)) = &self.config.key {
            request = request.bearer_auth(key);
        }
        // Errors of the client may name the address, which may hold a key.
        let mut response = request
            .send()
            .await
            .map_err(|error| Failed::network(&error.without_url()))?;
        let status = response.status();
        let retry_after = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(retry_after);
        let mut bytes = Vec::new();
        while let Some(part) = response
            .chunk()
            .await
            .map_err(|error| Failed::network(&error.without_url()))?
        {
            if bytes.len() + part.len() > BODY {
                return Err(Failed::again(format!(
                    "its reply is longer than {BODY} bytes"
                )));
            }
            bytes.extend_from_slice(&part);
        }
        if status.is_success() {
            return parse(&bytes)
                .map_err(|error| Failed::again(format!("its reply is no completion: {error}")));
        }
        let said = server_message(&bytes);
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS => Failed::ForNow {
                message: "it has too many requests (429)".to_owned(),
                wait: retry_after,
                busy: true,
            },
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let hint = if self.config.key.is_some() {
                    "it does not accept the key in `OPENAI_API_KEY`"
                } else {
                    "it asks for a key: set `OPENAI_API_KEY`"
                };
                Failed::ForGood(PortError::Infrastructure(format!(
                    "the model's server refused ({}): {hint}",
                    status.as_u16()
                )))
            }
            StatusCode::REQUEST_TIMEOUT => Failed::ForNow {
                message: "it timed out (408)".to_owned(),
                wait: retry_after,
                busy: false,
            },
            status if status.is_server_error() => Failed::ForNow {
                message: format!("it answered {}{said}", status.as_u16()),
                wait: retry_after,
                busy: status == StatusCode::SERVICE_UNAVAILABLE,
            },
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Failed::ForGood(
                PortError::Invalid(format!("the model's server refused the request{said}")),
            ),
            status => Failed::ForGood(PortError::Infrastructure(format!(
                "the model's server answered {}{said}",
                status.as_u16()
            ))),
        })
    }
}

/// Why one try failed.
enum Failed {
    /// Another try would fail as well.
    ForGood(PortError),
    ForNow {
        message: String,
        wait: Option<Duration>,
        busy: bool,
    },
}

impl Failed {
    fn again(message: String) -> Self {
        Self::ForNow {
            message,
            wait: None,
            busy: false,
        }
    }

    fn network(error: &reqwest::Error) -> Self {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self::again(message)
    }
}

/// Half a second, doubled each time, with jitter.
fn backoff(attempt: u32) -> Duration {
    let base = 0.5 * f64::from(1_u32 << attempt.min(6));
    Duration::from_secs_f64(base * (0.5 + fastrand::f64()))
}

/// `Retry-After` in seconds; the form with a date is left to the backoff.
fn retry_after(value: &header::HeaderValue) -> Option<Duration> {
    let seconds: f64 = value.to_str().ok()?.trim().parse().ok()?;
    (0.0..=3600.0)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

#[async_trait]
impl ChatModel for OpenAi {
    fn name(&self) -> String {
        self.model()
    }

    async fn complete(&self, request: ModelRequest<'_>) -> Result<ModelReply, PortError> {
        let (path, body) = wire::body(&self.model(), request, self.config.token_ids)?;
        let parse = |bytes: &[u8]| serde_json::from_slice::<Reply>(bytes);
        let mut reply = self.send(path, &body, request.deadline, &parse).await?;
        let tokens = reply.tokens().filter(|_| self.config.token_ids);
        let completion = reply.completion().ok_or_else(|| {
            PortError::Infrastructure("the model's server sent a reply without choices".to_owned())
        })?;
        Ok(ModelReply { completion, tokens })
    }
}
