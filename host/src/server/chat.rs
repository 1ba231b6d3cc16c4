//! `/v1/chat/completions`

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::Value;
use whale_lm::{ChatMessage, Tool, ToolCall};

use super::{
    Fault, Server,
    answer::{Answer, Kind, answer},
    replies::Replies,
    request::{Body, Common},
};

#[derive(Deserialize)]
pub(super) struct Chat {
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<ToolDescription>,
    tool_choice: Option<Value>,
    max_completion_tokens: Option<u64>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    #[serde(flatten)]
    common: Common,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Vec<Call>,
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Deserialize)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    id: String,
    function: CalledFunction,
}

#[derive(Deserialize)]
struct CalledFunction {
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct ToolDescription {
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Value,
}

pub(super) async fn handle(
    State(server): State<Arc<Server>>,
    Body(chat): Body<Chat>,
) -> Result<Response, Fault> {
    answer(move || start(server, chat)).await
}

fn start(server: Arc<Server>, chat: Chat) -> Result<(Answer, Replies), Fault> {
    let form = chat.common.form()?;
    let adapter = server.adapter_of(&chat.common.model)?;
    let tools = tools(chat.tools, chat.tool_choice.as_ref())?;
    let messages: Vec<ChatMessage> = chat
        .messages
        .into_iter()
        .map(message)
        .collect::<Result<_, _>>()?;
    if messages.is_empty() {
        return Err(Fault::setting("messages", "`messages` is empty"));
    }
    let engine = &server.engine;
    let prompt = engine.model().encode_chat(&messages, &tools)?;
    let room = engine.context().saturating_sub(prompt.len()).max(1);
    let logprobs = chat.logprobs.unwrap_or(false);
    let top = chat.top_logprobs.unwrap_or(0);
    if top > 0 && !logprobs {
        return Err(Fault::setting(
            "top_logprobs",
            "`top_logprobs` goes with `logprobs`",
        ));
    }
    let generate = chat
        .common
        .generate(chat.max_completion_tokens, room, top)?;
    let prompts = vec![prompt];
    let count = form.replies as usize;
    let replies = Replies::start(
        Arc::clone(&server),
        &prompts,
        count,
        &generate,
        adapter.as_deref(),
    )?;
    let kind = Kind::Chat {
        tools: !tools.is_empty(),
    };
    Ok((
        Answer::new(server, kind, chat.common.model, form, prompts, logprobs),
        replies,
    ))
}

fn tools(described: Vec<ToolDescription>, choice: Option<&Value>) -> Result<Vec<Tool>, Fault> {
    match choice.and_then(Value::as_str) {
        Some("none") => return Ok(Vec::new()),
        Some("auto") => {}
        None if choice.is_none_or(Value::is_null) => {}
        _ => {
            let message = "`tool_choice` can be `auto` or `none` here";
            return Err(Fault::setting("tool_choice", message));
        }
    }
    let tool = |tool: ToolDescription| Tool {
        name: tool.function.name,
        description: tool.function.description,
        parameters: tool.function.parameters,
    };
    Ok(described.into_iter().map(tool).collect())
}

fn message(message: Message) -> Result<ChatMessage, Fault> {
    let role = match message.role.as_str() {
        "developer" => "system",
        role @ ("system" | "user" | "assistant" | "tool") => role,
        other => {
            return Err(Fault::setting(
                "messages",
                format!("there is no role `{other}`"),
            ));
        }
    };
    let content = match message.content {
        None => String::new(),
        Some(Content::Text(text)) => text,
        Some(Content::Parts(parts)) => {
            let mut all = String::new();
            for part in parts {
                match (part.kind.as_str(), part.text) {
                    ("text", Some(text)) => all.push_str(&text),
                    (other, _) => {
                        let message =
                            format!("a part of a message is `{other}`; only `text` is read");
                        return Err(Fault::setting("messages", message));
                    }
                }
            }
            all
        }
    };
    let calls = message.tool_calls.into_iter().map(|call| ToolCall {
        id: call.id,
        name: call.function.name,
        arguments: call.function.arguments,
    });
    Ok(ChatMessage {
        role: role.to_owned(),
        content,
        tool_calls: calls.collect(),
        tool_call_id: message.tool_call_id,
    })
}
