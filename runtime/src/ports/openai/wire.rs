//! The protocol's own forms: what a request looks like, and what comes back.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    contract::{
        Completion, Constraint, FinishReason, Message, Prompt, Request, Role, ToolCall, Usage,
    },
    ports::{ModelRequest, PortError, Tokens},
};

/// The path and the body of a request.
///
/// # Errors
/// When the protocol has no word for what is asked.
pub(super) fn body(
    model: &str,
    request: ModelRequest<'_>,
    token_ids: bool,
) -> Result<(&'static str, Value), PortError> {
    let Request {
        prompt,
        tools,
        sampling,
        stop,
        constraint,
    } = request.request;
    let mut body = json!({
        "model": model,
        "max_tokens": request.max_tokens,
        // Servers read a signed number.
        "seed": request.seed >> 1,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
    });
    let path = match prompt {
        Prompt::Chat(messages) => {
            body["messages"] = messages.iter().map(message).collect();
            "chat/completions"
        }
        Prompt::Raw(text) => {
            body["prompt"] = json!(text);
            "completions"
        }
    };
    if token_ids {
        body["return_token_ids"] = json!(true);
        // Of the sampled token alone.
        body["logprobs"] = match prompt {
            Prompt::Chat(_) => json!(true),
            Prompt::Raw(_) => json!(0),
        };
    }
    if !stop.is_empty() {
        body["stop"] = json!(stop);
    }
    if !tools.is_empty() {
        body["tools"] = tools
            .iter()
            .map(|tool| {
                json!({"type": "function", "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": parse(&tool.parameters),
                }})
            })
            .collect();
    }
    match constraint {
        None => {}
        Some(Constraint::JsonSchema(schema)) => {
            body["response_format"] = json!({"type": "json_schema", "json_schema": {
                "name": "reply", "strict": true, "schema": parse(schema),
            }});
        }
        Some(Constraint::Choices(_) | Constraint::Regex(_)) => {
            return Err(PortError::Unavailable(
                "this server's protocol can't constrain a reply to choices or a regular \
                 expression; a JSON schema works"
                    .to_owned(),
            ));
        }
    }
    if let Value::Object(fields) = &mut body {
        fields.retain(|_, value| !value.is_null());
    }
    Ok((path, body))
}

/// JSON that the meter has checked.
fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn message(message: &Message) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut value = json!({"role": role, "content": message.content});
    if !message.tool_calls.is_empty() {
        value["tool_calls"] = message
            .tool_calls
            .iter()
            .map(|call| {
                json!({"id": call.id, "type": "function", "function": {
                    "name": call.name, "arguments": call.arguments,
                }})
            })
            .collect();
    }
    if let Some(id) = &message.tool_call_id {
        value["tool_call_id"] = json!(id);
    }
    value
}

/// What a server says in an error's body, short and on one line.
pub(super) fn server_message(bytes: &[u8]) -> String {
    let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let message = &body["error"]["message"];
    let text = message
        .as_str()
        .or(body["error"].as_str())
        .or(body["message"].as_str());
    text.map(|text| {
        format!(
            ": {}",
            text.escape_debug()
                .to_string()
                .chars()
                .take(300)
                .collect::<String>()
        )
    })
    .unwrap_or_default()
}

/// What a server answers to a request that it takes.
#[derive(Deserialize)]
pub(super) struct Reply {
    choices: Vec<Choice>,
    /// Of conversations; completions have it in their choices.
    prompt_token_ids: Option<Vec<u32>>,
    #[serde(default)]
    usage: ReplyUsage,
}

#[derive(Deserialize, Default)]
struct ReplyUsage {
    #[serde(default)]
    prompt_tokens: u32,
    #[serde(default)]
    completion_tokens: u32,
}

#[derive(Deserialize)]
struct Choice {
    message: Option<ReplyMessage>,
    text: Option<String>,
    finish_reason: Option<String>,
    prompt_token_ids: Option<Vec<u32>>,
    token_ids: Option<Vec<u32>>,
    logprobs: Option<ReplyLogprobs>,
}

/// In the form of conversations, or in that of completions.
#[derive(Deserialize, Default)]
struct ReplyLogprobs {
    #[serde(default)]
    content: Option<Vec<ReplyLogprob>>,
    #[serde(default)]
    token_logprobs: Option<Vec<Option<f32>>>,
}

#[derive(Deserialize)]
struct ReplyLogprob {
    logprob: f32,
}

#[derive(Deserialize)]
struct ReplyMessage {
    content: Option<String>,
    #[serde(default, deserialize_with = "null_as_none")]
    tool_calls: Vec<ReplyCall>,
}

fn null_as_none<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Vec<ReplyCall>, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

#[derive(Deserialize)]
struct ReplyCall {
    #[serde(default)]
    id: String,
    function: ReplyFunction,
}

#[derive(Deserialize)]
struct ReplyFunction {
    name: String,
    #[serde(default)]
    arguments: String,
}

impl Reply {
    /// What was read and written, token by token, where the server tells.
    pub(super) fn tokens(&mut self) -> Option<Tokens> {
        let choice = self.choices.first_mut()?;
        let prompt = choice.prompt_token_ids.take();
        let sampled = choice.token_ids.take()?;
        let told = choice.logprobs.take().unwrap_or_default();
        let of_chat = told
            .content
            .map(|content| content.iter().map(|token| token.logprob).collect());
        let of_text = || -> Option<Vec<f32>> { told.token_logprobs?.into_iter().collect() };
        Some(Tokens {
            prompt: prompt.or_else(|| self.prompt_token_ids.take())?,
            sampled,
            log_probabilities: of_chat.or_else(of_text).unwrap_or_default(),
        })
    }

    /// The first choice, if there is one.
    pub(super) fn completion(self) -> Option<Completion> {
        let choice = self.choices.into_iter().next()?;
        let (text, calls) = match choice.message {
            Some(message) => (message.content.unwrap_or_default(), message.tool_calls),
            None => (choice.text?, Vec::new()),
        };
        let tool_calls = calls.into_iter().map(|call| ToolCall {
            id: call.id,
            name: call.function.name,
            arguments: call.function.arguments,
        });
        Some(Completion {
            text,
            tool_calls: tool_calls.collect(),
            finish_reason: match choice.finish_reason.as_deref() {
                Some("length") => FinishReason::Length,
                Some("tool_calls" | "function_call") => FinishReason::ToolCalls,
                Some("content_filter") => FinishReason::ContentFilter,
                _ => FinishReason::Stop,
            },
            usage: Usage {
                prompt_tokens: self.usage.prompt_tokens,
                completion_tokens: self.usage.completion_tokens,
            },
        })
    }
}
