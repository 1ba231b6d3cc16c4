//! A model whose replies are written down: for tests, for smoke runs, and for looking at a harness
//! without a model. The same request with the same seed always has the same reply.

use std::{path::Path, time::Duration};

use async_trait::async_trait;
use serde::Deserialize;
use thiserror::Error;

use super::{ChatModel, ModelReply, ModelRequest, PortError};
use crate::{
    Digest,
    contract::{Completion, FinishReason, Prompt, Request, ToolCall, Usage},
};

/// A script: rules, of which the first that fits a request answers it.
#[derive(Clone, Debug)]
pub struct Scripted {
    rules: Vec<Rule>,
    /// Of the script.
    digest: Digest,
}

/// One line of a script, as JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Rule {
    /// Fits requests in which this text occurs; without it, all.
    when: Option<String>,
    /// One of these is taken, by the request's seed.
    #[serde(default)]
    replies: Vec<String>,
    /// The calls that the model asks for.
    #[serde(default)]
    tool_calls: Vec<ScriptedCall>,
    /// Milliseconds before the reply.
    #[serde(default)]
    delay: u64,
    /// Fails instead, as a server that is down does.
    error: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedCall {
    name: String,
    arguments: serde_json::Value,
}

/// Why a script could not be read.
#[derive(Debug, Error)]
pub enum ScriptError {
    /// The file could not be read.
    #[error("the script `{path}` can't be read: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A line is no rule.
    #[error(
        "line {line} of the script `{path}` is no rule: {error}; a rule looks like \
         {{\"when\": \"2+2\", \"replies\": [\"4\"]}}"
    )]
    Line {
        /// The file.
        path: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        error: serde_json::Error,
    },
}

impl Scripted {
    /// A model that always says this.
    #[must_use]
    pub fn always(reply: &str) -> Self {
        let rule = Rule {
            when: None,
            replies: vec![reply.to_owned()],
            tool_calls: Vec::new(),
            delay: 0,
            error: None,
        };
        Self {
            rules: vec![rule],
            digest: Digest::of(reply.as_bytes()),
        }
    }

    /// Reads a script: one rule a line, as JSON.
    ///
    /// # Errors
    /// When the file can't be read or a line is no rule.
    pub fn read(path: &Path) -> Result<Self, ScriptError> {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ScriptError::Io {
            path: name(),
            error,
        })?;
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty());
        let rules = lines.map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| ScriptError::Line {
                path: name(),
                line: number + 1,
                error,
            })
        });
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
            digest: Digest::of(text.as_bytes()),
        })
    }
}

/// The text of a request, all messages one after another.
fn text(request: &Request) -> String {
    match &request.prompt {
        Prompt::Raw(text) => text.clone(),
        Prompt::Chat(messages) => {
            let contents: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
            contents.join("\n")
        }
    }
}

/// Words stand for tokens here.
fn words(text: &str) -> u32 {
    u32::try_from(text.split_whitespace().count()).unwrap_or(u32::MAX)
}

#[async_trait]
impl ChatModel for Scripted {
    fn name(&self) -> String {
        "scripted".to_owned()
    }

    fn identity(&self) -> String {
        format!("scripted, {}", self.digest.short())
    }

    async fn complete(&self, request: ModelRequest<'_>) -> Result<ModelReply, PortError> {
        let text = text(request.request);
        let fits = |rule: &&Rule| rule.when.as_ref().is_none_or(|when| text.contains(when));
        let Some(rule) = self.rules.iter().find(fits) else {
            return Err(PortError::Infrastructure(
                "no rule of the script fits this request".to_owned(),
            ));
        };
        if rule.delay > 0 {
            tokio::time::sleep(Duration::from_millis(rule.delay)).await;
        }
        if let Some(error) = &rule.error {
            return Err(PortError::Infrastructure(error.clone()));
        }
        let choices = rule.replies.len().max(1) as u64;
        let chosen = usize::try_from(request.seed % choices).unwrap_or_default();
        let whole = rule.replies.get(chosen).cloned().unwrap_or_default();
        let mut reply = whole.as_str();
        for stop in &request.request.stop {
            reply = reply.split(stop.as_str()).next().unwrap_or_default();
        }
        let tool_calls: Vec<ToolCall> = rule
            .tool_calls
            .iter()
            .enumerate()
            .map(|(index, call)| ToolCall {
                id: format!("call-{index}"),
                name: call.name.clone(),
                arguments: call.arguments.to_string(),
            })
            .collect();
        let finish_reason = if tool_calls.is_empty() {
            FinishReason::Stop
        } else {
            FinishReason::ToolCalls
        };
        let usage = Usage {
            prompt_tokens: words(&text),
            completion_tokens: words(reply),
        };
        let completion = Completion {
            text: reply.to_owned(),
            tool_calls,
            finish_reason,
            usage,
        };
        Ok(ModelReply {
            completion,
            tokens: None,
        })
    }

    fn count_tokens(&self, text: &str) -> Result<u32, PortError> {
        Ok(words(text))
    }

    fn context_limit(&self) -> Result<u32, PortError> {
        Ok(8192)
    }
}
