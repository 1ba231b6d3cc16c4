//! The local model as a port: conversations and settings of the contract in the model's terms.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use tokio::{task::spawn_blocking, time::Instant};
use whale_lm::{ChatMessage, LmError, Model, Sampling, StopReason};
use whale_runtime::{
    contract::{Completion, Constraint, FinishReason, Prompt, Role, Usage},
    ports::{ChatModel, ModelReply, ModelRequest, PortError, Tokens},
};

/// A model in this process.
pub(crate) struct LocalModel {
    model: Arc<Model>,
}

impl LocalModel {
    pub(crate) fn load(path: &Path) -> Result<Self, LmError> {
        Ok(Self {
            model: Arc::new(Model::load(path)?),
        })
    }

    fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, PortError> {
        let ids = match prompt {
            Prompt::Raw(text) => self.model.encode(text),
            Prompt::Chat(messages) => {
                let messages: Vec<ChatMessage> = messages
                    .iter()
                    .map(|message| ChatMessage {
                        role: role(message.role),
                        content: message.content.clone(),
                    })
                    .collect();
                self.model.encode_chat(&messages)
            }
        };
        ids.map_err(port_error)
    }

    /// Each continuation's score, on a thread that may compute.
    async fn scores(
        &self,
        prompt: Vec<u32>,
        continuations: &[String],
    ) -> Result<Vec<f64>, PortError> {
        let encoded = continuations.iter().map(|text| self.model.encode(text));
        let encoded = encoded.collect::<Result<Vec<_>, _>>().map_err(port_error)?;
        let going = Going::new();
        let (model, goes) = (Arc::clone(&self.model), going.flag());
        let scored = spawn_blocking(move || {
            let open = || goes.load(Ordering::Relaxed);
            let each = encoded.iter().take_while(|_| open());
            each.map(|continuation| model.score(&prompt, continuation))
                .collect::<Result<Vec<_>, _>>()
        });
        let scored = scored
            .await
            .map_err(|error| PortError::Infrastructure(error.to_string()))?;
        scored.map_err(port_error)
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

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn port_error(error: LmError) -> PortError {
    match error {
        LmError::TooLong { .. } | LmError::NoTemplate | LmError::Template(_) => {
            PortError::Invalid(error.to_string())
        }
        _ => PortError::Infrastructure(error.to_string()),
    }
}

/// Stops a computation when the episode that asked for it is gone.
struct Going(Arc<AtomicBool>);

impl Going {
    fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[async_trait]
impl ChatModel for LocalModel {
    fn name(&self) -> String {
        self.model.name().to_owned()
    }

    async fn complete(&self, request: ModelRequest<'_>) -> Result<ModelReply, PortError> {
        let asked = request.request;
        if !asked.tools.is_empty() {
            return Err(PortError::Unavailable(
                "the local model takes no tools".to_owned(),
            ));
        }
        let prompt = self.encode(&asked.prompt)?;
        match &asked.constraint {
            None => {}
            Some(Constraint::Choices(choices)) => return self.choose(prompt, choices).await,
            Some(Constraint::Regex(_) | Constraint::JsonSchema(_)) => {
                return Err(PortError::Unavailable(
                    "the local model can be constrained to choices only".to_owned(),
                ));
            }
        }
        let sampling = Sampling {
            temperature: asked.sampling.temperature.unwrap_or(1.0),
            top_k: asked.sampling.top_k,
            top_p: asked.sampling.top_p,
            min_p: asked.sampling.min_p,
            repetition_penalty: asked.sampling.repetition_penalty,
        };
        let (stops, seed, most) = (
            asked.stop.clone(),
            request.seed,
            request.max_tokens as usize,
        );
        let going = Going::new();
        let (model, goes, ids) = (Arc::clone(&self.model), going.flag(), prompt.clone());
        let generated = spawn_blocking(move || {
            let go_on = || goes.load(Ordering::Relaxed);
            model.generate(&ids, most, &sampling, &stops, seed, go_on)
        });
        let generated = generated
            .await
            .map_err(|error| PortError::Infrastructure(error.to_string()))?;
        let generated = generated.map_err(port_error)?;
        let completion = Completion {
            text: generated.text,
            tool_calls: Vec::new(),
            finish_reason: match generated.reason {
                StopReason::Stop => FinishReason::Stop,
                StopReason::Length => FinishReason::Length,
            },
            usage: usage(prompt.len(), generated.sampled.len()),
        };
        let tokens = Tokens {
            prompt,
            sampled: generated.sampled,
            log_probabilities: generated.log_probabilities,
        };
        Ok(ModelReply {
            completion,
            tokens: Some(tokens),
        })
    }

    async fn score(
        &self,
        prompt: &Prompt,
        continuations: &[String],
        _deadline: Instant,
    ) -> Result<Vec<f64>, PortError> {
        self.scores(self.encode(prompt)?, continuations).await
    }

    fn count_tokens(&self, text: &str) -> Result<u32, PortError> {
        Ok(length(self.model.encode(text).map_err(port_error)?.len()))
    }

    fn context_limit(&self) -> Result<u32, PortError> {
        Ok(length(self.model.context()))
    }
}

impl LocalModel {
    /// The likeliest of the choices.
    async fn choose(&self, prompt: Vec<u32>, choices: &[String]) -> Result<ModelReply, PortError> {
        let read = prompt.len();
        let scores = self.scores(prompt, choices).await?;
        let best = scores.iter().zip(choices).max_by(|a, b| a.0.total_cmp(b.0));
        let text = best.map(|(_, choice)| choice.clone()).unwrap_or_default();
        let written = self.model.encode(&text).map_err(port_error)?.len();
        let completion = Completion {
            text,
            tool_calls: Vec::new(),
            finish_reason: FinishReason::Stop,
            usage: usage(read, written),
        };
        Ok(ModelReply {
            completion,
            tokens: None,
        })
    }
}

fn usage(prompt: usize, completion: usize) -> Usage {
    Usage {
        prompt_tokens: length(prompt),
        completion_tokens: length(completion),
    }
}

fn length(tokens: usize) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
