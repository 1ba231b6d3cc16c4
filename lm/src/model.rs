//! A model that is loaded: generation and scoring, one sequence at a time.

use std::{
    fs::File,
    io::BufReader,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use candle_core::{Device, IndexOp as _, Tensor, quantized::gguf_file::Content};
use candle_transformers::models::quantized_llama::ModelWeights;

use crate::{
    ChatMessage, LmError, Sampling,
    sampling::log_probability,
    template::Template,
    tokenizer::{self, Tokenizer},
};

/// The longest context that the model's code has rotary positions for.
const LONGEST: usize = 4096;

/// A model.
pub struct Model {
    name: String,
    weights: Mutex<ModelWeights>,
    tokenizer: Tokenizer,
    template: Option<Template>,
    context: usize,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model ended its turn, or a stop string came.
    Stop,
    /// It reached its longest length, or the context's.
    Length,
}

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Its text, without the stop string.
    pub text: String,
    /// Why it ended.
    pub reason: StopReason,
    /// The tokens that were sampled, the one that ended the turn included.
    pub sampled: Vec<u32>,
    /// The natural logarithm of each one's probability, before temperature and bounds.
    pub log_probabilities: Vec<f32>,
}

impl Model {
    /// Loads a GGUF file.
    ///
    /// # Errors
    /// When it can't be read, is damaged, or holds a model of another kind.
    pub fn load(path: &Path) -> Result<Self, LmError> {
        let shown = || path.display().to_string();
        let file = File::open(path).map_err(|error| LmError::Io {
            path: shown(),
            error,
        })?;
        let mut reader = BufReader::new(file);
        let damaged = |error: candle_core::Error| LmError::Format {
            path: shown(),
            message: first_line(&error),
        };
        let content = Content::read(&mut reader).map_err(damaged)?;
        let architecture = tokenizer::text(&content, "general.architecture")?;
        if architecture != "llama" {
            return Err(LmError::Architecture(architecture));
        }
        let tokenizer = Tokenizer::read(&content)?;
        let (beginning, end) = tokenizer.borders();
        let template = tokenizer::text(&content, "tokenizer.chat_template").ok();
        let template = template
            .map(|source| Template::new(source, beginning, end))
            .transpose()?;
        let context = content
            .metadata
            .get("llama.context_length")
            .and_then(tokenizer::number);
        let context = context
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(LONGEST)
            .min(LONGEST);
        let name = tokenizer::text(&content, "general.name").unwrap_or_else(|_| "local".to_owned());
        let weights =
            ModelWeights::from_gguf(content, &mut reader, &Device::Cpu).map_err(damaged)?;
        Ok(Self {
            name,
            weights: Mutex::new(weights),
            tokenizer,
            template,
            context,
        })
    }

    /// What the file calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The longest prompt and reply together, in tokens.
    #[must_use]
    pub fn context(&self) -> usize {
        self.context
    }

    /// A conversation as token ids, ready for the model's turn.
    ///
    /// # Errors
    /// When the model has no chat template, or it does not take these messages.
    pub fn encode_chat(&self, messages: &[ChatMessage]) -> Result<Vec<u32>, LmError> {
        let template = self.template.as_ref().ok_or(LmError::NoTemplate)?;
        self.tokenizer.encode(&template.render(messages)?)
    }

    /// A text as token ids.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, LmError> {
        self.tokenizer.encode(text)
    }

    /// Token ids as text, without the tokens that stand for control.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String, LmError> {
        self.tokenizer.decode(ids)
    }

    fn weights(&self) -> MutexGuard<'_, ModelWeights> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self, prompt: &[u32]) -> Result<usize, LmError> {
        match self.context.checked_sub(prompt.len()) {
            Some(room) if room > 0 && !prompt.is_empty() => Ok(room),
            _ => Err(LmError::TooLong {
                tokens: prompt.len(),
                limit: self.context,
            }),
        }
    }

    /// Writes a reply to a prompt. `go_on` is asked before each token.
    ///
    /// # Errors
    /// When the prompt is too long or the computation fails.
    pub fn generate(
        &self,
        prompt: &[u32],
        max_tokens: usize,
        sampling: &Sampling,
        stops: &[String],
        seed: u64,
        go_on: impl Fn() -> bool,
    ) -> Result<Generated, LmError> {
        let most = max_tokens.min(self.room(prompt)?);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut weights = self.weights();
        weights.clear_kv_cache();
        let mut logits = forward(&mut weights, prompt, 0)?;
        let mut seen = prompt.to_vec();
        let mut generated = Generated {
            text: String::new(),
            reason: StopReason::Length,
            sampled: Vec::new(),
            log_probabilities: Vec::new(),
        };
        while generated.sampled.len() < most && go_on() {
            let chosen = sampling.choose(&logits, &seen, &mut random);
            generated.sampled.push(chosen.token);
            generated.log_probabilities.push(chosen.log_probability);
            if chosen.token == self.tokenizer.end {
                generated.reason = StopReason::Stop;
                break;
            }
            seen.push(chosen.token);
            if !stops.is_empty() {
                let text = self.tokenizer.decode(&generated.sampled)?;
                if let Some(at) = stops
                    .iter()
                    .filter_map(|stop| text.find(stop.as_str()))
                    .min()
                {
                    generated.text = text[..at].to_owned();
                    generated.reason = StopReason::Stop;
                    return Ok(generated);
                }
            }
            if generated.sampled.len() < most {
                logits = forward(&mut weights, &[chosen.token], seen.len() - 1)?;
            }
        }
        generated.text = self.tokenizer.decode(&generated.sampled)?;
        Ok(generated)
    }

    /// The natural logarithm of the likelihood of a continuation after a prompt.
    ///
    /// # Errors
    /// When both together are too long or the computation fails.
    pub fn score(&self, prompt: &[u32], continuation: &[u32]) -> Result<f64, LmError> {
        if self.room(prompt)? < continuation.len() {
            let tokens = prompt.len() + continuation.len();
            return Err(LmError::TooLong {
                tokens,
                limit: self.context,
            });
        }
        let mut weights = self.weights();
        weights.clear_kv_cache();
        let mut logits = forward(&mut weights, prompt, 0)?;
        let mut sum = 0.0;
        for (offset, token) in continuation.iter().enumerate() {
            sum += f64::from(log_probability(&logits, *token as usize));
            if offset + 1 < continuation.len() {
                logits = forward(&mut weights, &[*token], prompt.len() + offset)?;
            }
        }
        Ok(sum)
    }
}

/// The logits after the last of these tokens, which stand at `position` and on.
fn forward(
    weights: &mut ModelWeights,
    tokens: &[u32],
    position: usize,
) -> Result<Vec<f32>, LmError> {
    let input = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
    Ok(weights.forward(&input, position)?.i(0)?.to_vec1()?)
}

/// Candle's errors carry a backtrace behind their first line.
fn first_line(error: &candle_core::Error) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}
