//! The engine as a port: conversations and settings of the contract in the engine's terms.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use whale_lm::{
    ChatMessage, Constraint as LmConstraint, Engine, Event, Generate, Generated, LmError, Request,
    Sampling, Scored, Tool, ToolCall, Work,
};
use whale_runtime::{
    contract::{
        Completion, Constraint, FinishReason, Prompt, Role, Tool as ContractTool,
        ToolCall as ContractCall, Usage,
    },
    ports::{ChatModel, ModelReply, ModelRequest, PortError, Tokens},
};

/// A model in this process, perhaps with an adapter. What it serves can be changed while it runs.
pub(crate) struct LocalModel {
    serving: RwLock<Serving>,
    /// How it computes, where that is not the usual way: results differ in their last digits.
    how: String,
}

/// What a request runs on.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) engine: Arc<Engine>,
    /// The name under which its adapter is loaded.
    pub(crate) adapter: Option<String>,
}

impl LocalModel {
    pub(crate) fn new(engine: Arc<Engine>, adapter: Option<String>, how: String) -> Self {
        Self {
            serving: RwLock::new(Serving { engine, adapter }),
            how,
        }
    }

    /// What requests run on now.
    pub(crate) fn serving(&self) -> Serving {
        self.serving
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What requests run on from now on; those that run keep what they began with.
    pub(crate) fn serve(&self, serving: Serving) {
        *self.serving.write().unwrap_or_else(PoisonError::into_inner) = serving;
    }
}

impl Serving {
    fn encode(&self, prompt: &Prompt, tools: &[ContractTool]) -> Result<Vec<u32>, PortError> {
        let model = self.engine.model();
        let ids = match prompt {
            Prompt::Raw(text) => model.encode_prompt(text),
            Prompt::Chat(messages) => {
                let messages: Vec<ChatMessage> = messages
                    .iter()
                    .map(|message| ChatMessage {
                        role: role(message.role).to_owned(),
                        content: message.content.clone(),
                        tool_calls: message.tool_calls.iter().map(call).collect(),
                        tool_call_id: message.tool_call_id.clone(),
                    })
                    .collect();
                let tools = tools.iter().map(tool).collect::<Result<Vec<_>, _>>()?;
                model.encode_chat(&messages, &tools)
            }
        };
        ids.map_err(port_error)
    }

    /// Runs a request to its end; it is cancelled when the caller goes away.
    pub(crate) async fn run(
        &self,
        request: Request,
        deadline: Instant,
    ) -> Result<Event, PortError> {
        let (sender, receiver) = oneshot::channel();
        let mut sender = Some(sender);
        let sink = Box::new(move |event: Event| {
            if !matches!(event, Event::Token { .. })
                && let Some(sender) = sender.take()
            {
                let _ = sender.send(event);
            }
        });
        let _ticket = self.engine.submit(request, sink).map_err(port_error)?;
        let late = |_| PortError::Infrastructure("the episode's time is over".to_owned());
        match timeout_at(deadline, receiver).await.map_err(late)? {
            Ok(Event::Failed(error)) => Err(port_error(error)),
            Ok(event) => Ok(event),
            Err(_) => Err(port_error(LmError::Stopped)),
        }
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

fn call(call: &ContractCall) -> ToolCall {
    ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    }
}

fn tool(tool: &ContractTool) -> Result<Tool, PortError> {
    let parameters = serde_json::from_str(&tool.parameters).map_err(|error| {
        PortError::Invalid(format!(
            "the parameters of `{}` are no JSON: {error}",
            tool.name
        ))
    })?;
    Ok(Tool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters,
    })
}

fn constraint(asked: &Constraint) -> Result<LmConstraint, PortError> {
    Ok(match asked {
        Constraint::Choices(choices) => LmConstraint::Choices(choices.clone()),
        Constraint::Regex(regex) => LmConstraint::Regex(regex.clone()),
        Constraint::JsonSchema(schema) => {
            let schema = serde_json::from_str(schema)
                .map_err(|error| PortError::Invalid(format!("the schema is no JSON: {error}")))?;
            LmConstraint::JsonSchema(schema)
        }
    })
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn port_error(error: LmError) -> PortError {
    match error {
        LmError::TooLong { .. }
        | LmError::Empty
        | LmError::NoTemplate
        | LmError::Template(_)
        | LmError::Setting { .. }
        | LmError::Constraint(_) => PortError::Invalid(error.to_string()),
        _ => PortError::Infrastructure(error.to_string()),
    }
}

#[async_trait]
impl ChatModel for LocalModel {
    fn name(&self) -> String {
        self.serving().engine.model().name().to_owned()
    }

    fn identity(&self) -> String {
        let Serving { engine, adapter } = self.serving();
        let model = engine.model();
        let short = |hash: &str| hash[..hash.len().min(12)].to_owned();
        let adapters = engine.adapters();
        let adapter = adapters
            .iter()
            .find(|(name, _)| Some(name) == adapter.as_ref());
        let adapter = adapter.map(|(_, hash)| format!(", adapter {}", short(hash)));
        format!(
            "{}, weights {}{}{}",
            model.name(),
            short(model.hash()),
            adapter.unwrap_or_default(),
            self.how
        )
    }

    async fn complete(&self, request: ModelRequest<'_>) -> Result<ModelReply, PortError> {
        let asked = request.request;
        let serving = self.serving();
        let prompt = serving.encode(&asked.prompt, &asked.tools)?;
        let generate = Generate {
            max_tokens: request.max_tokens as usize,
            sampling: Sampling {
                temperature: asked.sampling.temperature.unwrap_or(1.0),
                top_k: asked.sampling.top_k,
                top_p: asked.sampling.top_p,
                min_p: asked.sampling.min_p,
                repetition_penalty: asked.sampling.repetition_penalty,
            },
            stops: asked.stop.clone(),
            constraint: asked.constraint.as_ref().map(constraint).transpose()?,
            seed: request.seed,
            ..Generate::default()
        };
        let work = Request {
            prompt: prompt.clone(),
            work: Work::Generate(generate),
            adapter: serving.adapter.clone(),
        };
        match serving.run(work, request.deadline).await? {
            Event::Generated(generated) => Ok(reply(prompt, &generated, !asked.tools.is_empty())),
            _ => Err(PortError::Infrastructure(
                "the engine did something else".to_owned(),
            )),
        }
    }

    async fn score(
        &self,
        prompt: &Prompt,
        continuations: &[String],
        deadline: Instant,
    ) -> Result<Vec<f64>, PortError> {
        let serving = &self.serving();
        let prompt = serving.encode(prompt, &[])?;
        let scores = continuations.iter().map(|text| {
            let prompt = prompt.clone();
            async move {
                let continuation = serving.engine.model().encode(text).map_err(port_error)?;
                if continuation.is_empty() {
                    return Ok(0.0);
                }
                let work = Work::Score(continuation);
                let request = Request {
                    prompt,
                    work,
                    adapter: serving.adapter.clone(),
                };
                match serving.run(request, deadline).await? {
                    Event::Scored(Scored {
                        log_probabilities, ..
                    }) => Ok(log_probabilities.iter().map(|p| f64::from(*p)).sum()),
                    _ => Err(PortError::Infrastructure(
                        "the engine did something else".to_owned(),
                    )),
                }
            }
        });
        futures::future::try_join_all(scores).await
    }

    fn count_tokens(&self, text: &str) -> Result<u32, PortError> {
        Ok(length(
            self.serving()
                .engine
                .model()
                .encode(text)
                .map_err(port_error)?
                .len(),
        ))
    }

    fn context_limit(&self) -> Result<u32, PortError> {
        Ok(length(self.serving().engine.context()))
    }
}

fn reply(prompt: Vec<u32>, generated: &Generated, with_tools: bool) -> ModelReply {
    let (text, calls) = if with_tools {
        whale_lm::parse_tool_calls(&generated.text)
    } else {
        (generated.text.clone(), Vec::new())
    };
    let finish_reason = match generated.finish {
        _ if !calls.is_empty() => FinishReason::ToolCalls,
        whale_lm::FinishReason::Stop => FinishReason::Stop,
        whale_lm::FinishReason::Length => FinishReason::Length,
    };
    let tool_calls = calls.into_iter().map(|call| ContractCall {
        id: call.id,
        name: call.name,
        arguments: call.arguments,
    });
    let completion = Completion {
        text,
        tool_calls: tool_calls.collect(),
        finish_reason,
        usage: Usage {
            prompt_tokens: length(prompt.len()),
            completion_tokens: length(generated.tokens.len()),
        },
    };
    let tokens = Tokens {
        prompt,
        sampled: generated.ids(),
        log_probabilities: generated
            .tokens
            .iter()
            .map(|token| token.log_probability)
            .collect(),
    };
    ModelReply {
        completion,
        tokens: Some(tokens),
    }
}

fn length(tokens: usize) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
