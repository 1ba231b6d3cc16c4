//! A retrieval server that speaks Search-R1's protocol: `POST /retrieve`.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};
use whale_runtime::{
    contract::{Document, Hit},
    ports::{PortError, SearchIndex},
};

use crate::{SearchError, passages::titled};

/// Bytes of an answer.
const LARGEST: usize = 16 << 20;
const TRIES: u32 = 3;
/// One request.
const WAIT: Duration = Duration::from_secs(20);
/// Hits of a query.
const HITS: u32 = 100;

/// A retrieval server.
pub struct Server {
    client: Client,
    address: Url,
}

#[derive(Deserialize)]
struct Answer {
    result: Vec<Vec<Found>>,
}

#[derive(Deserialize)]
struct Found {
    document: Contents,
    score: f64,
}

#[derive(Deserialize)]
struct Contents {
    #[serde(default)]
    id: serde_json::Value,
    contents: String,
}

impl Server {
    /// A server at this address; `/retrieve` is added to one without a path.
    ///
    /// # Errors
    /// When it is no HTTP address.
    pub fn new(address: &str) -> Result<Self, SearchError> {
        let wrong = |why: String| SearchError::Address {
            address: address.to_owned(),
            why,
        };
        let mut url = Url::parse(address).map_err(|error| wrong(error.to_string()))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(wrong(
                "it begins neither with http: nor with https:".to_owned(),
            ));
        }
        if url.path() == "/" {
            url.set_path("/retrieve");
        }
        let client = Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .timeout(WAIT)
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            client,
            address: url,
        })
    }

    /// Asks once. The second of an error says whether to ask again.
    async fn ask(&self, text: &str, k: u32) -> Result<Vec<Hit>, (String, bool)> {
        // Without scores, some of these servers fail.
        let body = json!({ "queries": [text], "topk": k, "return_scores": true });
        let sent = self
            .client
            .post(self.address.clone())
            .json(&body)
            .send()
            .await;
        let mut response = sent.map_err(|error| {
            let why = if error.is_timeout() {
                format!("it did not answer within {} s", WAIT.as_secs())
            } else {
                "it can't be reached".to_owned()
            };
            (why, true)
        })?;
        let status = response.status();
        if !status.is_success() {
            return Err((
                format!("it answered with {status}"),
                status.is_server_error(),
            ));
        }
        let mut bytes = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if bytes.len() + chunk.len() > LARGEST => {
                    return Err((format!("it answered with more than {LARGEST} bytes"), false));
                }
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(_) => return Err(("it broke off in the middle of an answer".to_owned(), true)),
            }
        }
        let answer: Answer = serde_json::from_slice(&bytes)
            .map_err(|error| (format!("its answer is not Search-R1's: {error}"), false))?;
        let [hits] = <[Vec<Found>; 1]>::try_from(answer.result).map_err(|all| {
            (
                format!("it answered one query with {} lists", all.len()),
                false,
            )
        })?;
        let hits = hits.into_iter().take(k as usize).map(|found| {
            let (title, text) = titled(&found.document.contents);
            let id = match found.document.id {
                serde_json::Value::String(id) => id,
                other => other.to_string(),
            };
            Hit {
                id,
                title,
                text,
                score: found.score,
            }
        });
        Ok(hits.collect())
    }
}

#[async_trait]
impl SearchIndex for Server {
    async fn query(&self, text: &str, k: u32, deadline: Instant) -> Result<Vec<Hit>, PortError> {
        let failed = |why: &str| {
            // The address may hold a name and a password.
            let host = self.address.host_str().unwrap_or_default();
            PortError::Infrastructure(format!("the retrieval server at `{host}`: {why}"))
        };
        let mut last = String::new();
        for attempt in 0..TRIES {
            match timeout_at(deadline, self.ask(text, k.min(HITS))).await {
                Ok(Ok(hits)) => return Ok(hits),
                Ok(Err((why, again))) => {
                    last = why;
                    if !again {
                        break;
                    }
                }
                Err(_) => return Err(failed("the episode's time is over")),
            }
            sleep(Duration::from_millis(200 << attempt)).await;
        }
        Err(failed(&last))
    }

    async fn open(&self, _id: &str, _deadline: Instant) -> Result<Document, PortError> {
        Err(PortError::Unavailable(
            "this task's retrieval server has no way to open a document; hits hold their whole text"
                .to_owned(),
        ))
    }
}
