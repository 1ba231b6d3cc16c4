//! Answers as the protocol writes them, whole and in pieces.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json,
    response::{
        IntoResponse as _, Response, Sse,
        sse::{Event as Piece, KeepAlive},
    },
};
use futures::stream;
use serde_json::{Map, Value, json};
use whale_lm::{Event, FinishReason, Generated, LmError, SampledToken, ToolCall};

use super::{Fault, Server, replies::Replies, request::Form};

/// How the answer to one request is written.
pub(super) struct Answer {
    pub(super) server: Arc<Server>,
    pub(super) kind: Kind,
    pub(super) model: String,
    pub(super) form: Form,
    pub(super) prompts: Vec<Vec<u32>>,
    /// Log-probabilities are wanted.
    pub(super) log_probabilities: bool,
    /// Those of the prompts' own tokens, from the second on, where they are wanted.
    of_prompts: Option<Vec<Vec<f32>>>,
    id: String,
    created: u64,
}

/// Which of the protocol's two forms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Chat {
        /// Replies are searched for tool calls, and so are written only when they are whole.
        tools: bool,
    },
    Text,
}

/// Starts replies and answers with them. Templates, tokenizers and grammars compute, so `start` runs
/// where computing is allowed.
pub(super) async fn answer(
    start: impl FnOnce() -> Result<(Answer, Replies), Fault> + Send + 'static,
) -> Result<Response, Fault> {
    let started = tokio::task::spawn_blocking(start).await;
    let (answer, replies) = started.map_err(|_| Fault::from(LmError::Stopped))??;
    answer.send(replies).await
}

impl Answer {
    pub(super) fn new(
        server: Arc<Server>,
        kind: Kind,
        model: String,
        form: Form,
        prompts: Vec<Vec<u32>>,
        log_probabilities: bool,
    ) -> Self {
        let prefix = if kind == Kind::Text {
            "cmpl"
        } else {
            "chatcmpl"
        };
        let id = format!("{prefix}-{:016x}", super::request::random_seed());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let created = now.as_secs();
        Self {
            server,
            kind,
            model,
            form,
            prompts,
            log_probabilities,
            of_prompts: None,
            id,
            created,
        }
    }

    /// With the log-probabilities of the prompts' own tokens, from the second on.
    pub(super) fn with_prompts(self, of_prompts: Option<Vec<Vec<f32>>>) -> Self {
        Self { of_prompts, ..self }
    }

    /// Waits for the replies, or gives them out as they come.
    async fn send(self, replies: Replies) -> Result<Response, Fault> {
        if self.form.streams {
            return Ok(self.stream(replies));
        }
        let done = replies.all().await?;
        let choices = done
            .iter()
            .enumerate()
            .map(|(index, reply)| self.whole(index, reply));
        let mut body = self.frame("");
        body.insert("choices".to_owned(), choices.collect());
        body.insert("usage".to_owned(), self.usage(&done));
        if self.form.token_ids && self.kind != Kind::Text {
            body.insert("prompt_token_ids".to_owned(), json!(self.prompts[0]));
        }
        Ok(Json(Value::Object(body)).into_response())
    }

    fn frame(&self, suffix: &str) -> Map<String, Value> {
        let object = match self.kind {
            Kind::Text => "text_completion".to_owned(),
            Kind::Chat { .. } => format!("chat.completion{suffix}"),
        };
        let mut frame = Map::new();
        frame.insert("id".to_owned(), json!(self.id));
        frame.insert("object".to_owned(), json!(object));
        frame.insert("created".to_owned(), json!(self.created));
        frame.insert("model".to_owned(), json!(self.model));
        frame
    }

    fn usage(&self, done: &[Generated]) -> Value {
        let replies = self.form.replies as usize;
        // A prompt counts once, however many replies it has.
        let prompt: usize = done
            .iter()
            .step_by(replies)
            .map(|reply| reply.prompt_tokens)
            .sum();
        let cached: usize = done
            .iter()
            .step_by(replies)
            .map(|reply| reply.cached_tokens)
            .sum();
        let completion: usize = done.iter().map(|reply| reply.tokens.len()).sum();
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": { "cached_tokens": cached },
        })
    }

    /// A choice of an answer that is given in one piece.
    fn whole(&self, index: usize, reply: &Generated) -> Value {
        let mut choice = json!({ "index": index });
        let finish = match self.kind {
            Kind::Text => {
                choice["text"] = json!(reply.text);
                finish(reply.finish)
            }
            Kind::Chat { tools } => {
                let (text, calls) = split(reply, tools);
                let mut message = json!({ "role": "assistant", "content": text });
                if !calls.is_empty() {
                    message["tool_calls"] = calls.iter().map(call).collect();
                }
                choice["message"] = message;
                if calls.is_empty() {
                    finish(reply.finish)
                } else {
                    "tool_calls"
                }
            }
        };
        choice["finish_reason"] = json!(finish);
        choice["logprobs"] = self.logprobs(&reply.tokens);
        if self.form.token_ids {
            choice["token_ids"] = json!(reply.ids());
            if self.kind == Kind::Text {
                let prompt = &self.prompts[index / self.form.replies as usize];
                choice["prompt_token_ids"] = json!(prompt);
            }
        }
        if let Some(of_prompts) = &self.of_prompts {
            let prompt = index / self.form.replies as usize;
            let told = of_prompts[prompt].iter().zip(&self.prompts[prompt][1..]);
            let told = told.map(|(p, id)| json!({ id.to_string(): { "logprob": p } }));
            // Nothing comes before the first.
            choice["prompt_logprobs"] = [Value::Null].into_iter().chain(told).collect();
        }
        choice
    }

    fn logprobs(&self, tokens: &[SampledToken]) -> Value {
        if !self.log_probabilities {
            return Value::Null;
        }
        let model = self.server.engine.model();
        let text = |id: u32| String::from_utf8_lossy(&model.token_bytes(id)).into_owned();
        match self.kind {
            Kind::Chat { .. } => {
                let one = |id: u32, p: f32| json!({ "token": text(id), "logprob": p, "bytes": model.token_bytes(id) });
                let content = tokens.iter().map(|token| {
                    let mut entry = one(token.id, token.log_probability);
                    entry["top_logprobs"] = token.top.iter().map(|(id, p)| one(*id, *p)).collect();
                    entry
                });
                json!({ "content": content.collect::<Value>() })
            }
            Kind::Text => {
                let mut offset = 0;
                let mut offsets = Vec::with_capacity(tokens.len());
                for token in tokens {
                    offsets.push(offset);
                    offset += text(token.id).chars().count();
                }
                let top = tokens.iter().map(|token| {
                    let pairs = token.top.iter().map(|(id, p)| (text(*id), json!(p)));
                    Value::Object(pairs.collect())
                });
                json!({
                    "tokens": tokens.iter().map(|token| text(token.id)).collect::<Vec<_>>(),
                    "token_logprobs":
                        tokens.iter().map(|token| token.log_probability).collect::<Vec<_>>(),
                    "top_logprobs": top.collect::<Value>(),
                    "text_offset": offsets,
                })
            }
        }
    }

    fn stream(self, replies: Replies) -> Response {
        let state = Stream {
            begun: vec![false; self.prompts.len() * self.form.replies as usize],
            done: Vec::new(),
            answer: self,
            replies: Some(replies),
            ready: Vec::new(),
        };
        let pieces = stream::unfold(state, |mut state| async move {
            let piece = state.next().await?;
            Some((Ok::<_, Infallible>(piece), state))
        });
        Sse::new(pieces)
            .keep_alive(KeepAlive::default())
            .into_response()
    }

    fn piece(&self, choice: &Value) -> Value {
        let mut body = self.frame(".chunk");
        body.insert("choices".to_owned(), json!([choice]));
        Value::Object(body)
    }
}

/// A reply's text and, where there are tools, the calls in it.
fn split(reply: &Generated, tools: bool) -> (Value, Vec<ToolCall>) {
    if !tools {
        return (json!(reply.text), Vec::new());
    }
    let (text, calls) = whale_lm::parse_tool_calls(&reply.text);
    let nothing = text.is_empty() && !calls.is_empty();
    (if nothing { Value::Null } else { json!(text) }, calls)
}

fn call(call: &ToolCall) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

fn finish(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}

/// An answer that is given out in pieces.
struct Stream {
    answer: Answer,
    /// None once the end was sent.
    replies: Option<Replies>,
    /// Pieces that go out next, the last first.
    ready: Vec<Piece>,
    begun: Vec<bool>,
    done: Vec<(usize, Generated)>,
}

impl Stream {
    async fn next(&mut self) -> Option<Piece> {
        loop {
            if let Some(piece) = self.ready.pop() {
                return Some(piece);
            }
            let replies = self.replies.as_mut()?;
            let mut pieces: Vec<Value> = Vec::new();
            match replies.next().await {
                Some((index, Event::Token { token, text })) => {
                    pieces.extend(self.token(index, &token, &text));
                }
                Some((index, Event::Generated(reply))) => {
                    pieces.extend(self.end(index, &reply));
                    self.done.push((index, reply));
                }
                Some((_, Event::Failed(error))) => {
                    // The status is sent already, so the error is a piece, and the last.
                    pieces.push(Fault::from(error).body());
                    self.replies = None;
                }
                Some((_, Event::Scored(_))) => {}
                None => {
                    self.replies = None;
                    if self.answer.form.usage_in_stream {
                        self.done.sort_by_key(|(index, _)| *index);
                        let done: Vec<Generated> =
                            self.done.drain(..).map(|(_, reply)| reply).collect();
                        let mut body = self.answer.frame(".chunk");
                        body.insert("choices".to_owned(), json!([]));
                        body.insert("usage".to_owned(), self.answer.usage(&done));
                        pieces.push(Value::Object(body));
                    }
                    self.ready.push(Piece::default().data("[DONE]"));
                }
            }
            let texts = pieces.into_iter().rev();
            self.ready
                .extend(texts.map(|piece| Piece::default().data(piece.to_string())));
        }
    }

    fn token(&mut self, index: usize, token: &SampledToken, text: &str) -> Vec<Value> {
        let answer = &self.answer;
        let mut pieces = Vec::new();
        let mut choice = json!({ "index": index, "finish_reason": null });
        match answer.kind {
            Kind::Text => choice["text"] = json!(text),
            Kind::Chat { tools } => {
                if !std::mem::replace(&mut self.begun[index], true) {
                    let delta = json!({ "role": "assistant", "content": "" });
                    let first = json!({ "index": index, "delta": delta, "finish_reason": null });
                    pieces.push(answer.piece(&first));
                }
                choice["delta"] = if tools {
                    json!({})
                } else {
                    json!({ "content": text })
                };
            }
        }
        choice["logprobs"] = answer.logprobs(std::slice::from_ref(token));
        if answer.form.token_ids {
            choice["token_ids"] = json!([token.id]);
        }
        let silent = text.is_empty() || matches!(answer.kind, Kind::Chat { tools: true });
        if !silent || answer.log_probabilities || answer.form.token_ids {
            pieces.push(answer.piece(&choice));
        }
        pieces
    }

    fn end(&self, index: usize, reply: &Generated) -> Vec<Value> {
        let answer = &self.answer;
        let reason = finish(reply.finish);
        let Kind::Chat { tools } = answer.kind else {
            let choice = json!({ "index": index, "text": "", "finish_reason": reason });
            return vec![answer.piece(&choice)];
        };
        let mut pieces = Vec::new();
        let mut reason = reason;
        if tools {
            let (text, calls) = split(reply, true);
            let mut delta = json!({ "content": text });
            if !calls.is_empty() {
                reason = "tool_calls";
                let calls = calls.iter().enumerate().map(|(at, found)| {
                    let mut piece = call(found);
                    piece["index"] = json!(at);
                    piece
                });
                delta["tool_calls"] = calls.collect();
            }
            let choice = json!({ "index": index, "delta": delta, "finish_reason": null });
            pieces.push(answer.piece(&choice));
        }
        let last = json!({ "index": index, "delta": {}, "finish_reason": reason });
        pieces.push(answer.piece(&last));
        pieces
    }
}
