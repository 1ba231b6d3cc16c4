//! Which architectures there are, and what a checkpoint's configuration says of them.

mod gemma3;
#[cfg(test)]
mod gguf_reference;
mod llama;
mod qwen2;
mod qwen3;
mod qwen3_5;
#[cfg(test)]
mod reference;

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    LmError,
    blocks::{Backend, Decoder, Embedding, Layer, Loader, Rotary, Scaling},
    weights::Checkpoint,
};

/// An architecture that is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM2.
    Llama,
    /// Qwen2 and Qwen2.5.
    Qwen2,
    /// Qwen3, dense.
    Qwen3,
    /// Gemma 3, text.
    Gemma3,
    /// Qwen3.5, dense, text.
    Qwen35,
}

impl Architecture {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Llama,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gemma3,
        Self::Qwen35,
    ];

    /// What `config.json` calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma3 => "gemma3_text",
            Self::Qwen35 => "qwen3_5_text",
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What all architectures have. Fields are those of `config.json`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Shape {
    model_type: String,
    pub(crate) vocab_size: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    pub(crate) rms_norm_eps: f64,
    max_position_embeddings: Option<usize>,
    #[serde(default)]
    tie_word_embeddings: bool,
    rope_theta: Option<f64>,
    rope_parameters: Option<Value>,
    rope_scaling: Option<Value>,
    rope_factors: Option<String>,
}

impl Shape {
    pub(crate) fn key_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    pub(crate) fn head_dim(&self) -> usize {
        self.head_dim
            .unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// The longest prompt and reply together that the model was made for.
    pub(crate) fn context(&self) -> usize {
        self.max_position_embeddings.unwrap_or(2048)
    }

    /// Refuses what can't be a model, before anything is allocated from it.
    fn check(&self) -> Result<(), LmError> {
        let bounds = [
            ("vocab_size", self.vocab_size, 1 << 20),
            ("hidden_size", self.hidden_size, 1 << 16),
            ("intermediate_size", self.intermediate_size, 1 << 18),
            ("num_hidden_layers", self.num_hidden_layers, 512),
            ("num_attention_heads", self.num_attention_heads, 512),
            ("num_key_value_heads", self.key_heads(), 512),
            ("head_dim", self.head_dim(), 1024),
            ("max_position_embeddings", self.context(), 1 << 24),
        ];
        for (name, value, most) in bounds {
            if value == 0 || value > most {
                return Err(LmError::Config(format!(
                    "`{name}` is {value}; it must be 1 to {most}"
                )));
            }
        }
        let (heads, key_heads) = (self.num_attention_heads, self.key_heads());
        if !heads.is_multiple_of(key_heads) {
            return Err(LmError::Config(format!(
                "{heads} attention heads can't share {key_heads} key heads"
            )));
        }
        if !self.head_dim().is_multiple_of(2) {
            return Err(LmError::Config(format!(
                "`head_dim` is {}, which is odd",
                self.head_dim()
            )));
        }
        Ok(())
    }

    /// The rotary of layers of this kind, where kinds have their own.
    pub(crate) fn rotary(
        &self,
        checkpoint: &Checkpoint,
        kind: Option<&str>,
        turned: usize,
        default_theta: f64,
    ) -> Result<Rotary, LmError> {
        let parameters = self.rope_parameters.as_ref();
        let parameters = match (parameters, kind) {
            (Some(all), Some(kind)) => all.get(kind).or(Some(all)),
            (parameters, _) => parameters,
        };
        let parameters = parameters.or(self.rope_scaling.as_ref());
        let number = |key: &str| parameters?.get(key)?.as_f64();
        let theta = number("rope_theta")
            .or(self.rope_theta)
            .unwrap_or(default_theta);
        let text = |key: &str| parameters?.get(key)?.as_str();
        let form = text("rope_type")
            .or_else(|| text("type"))
            .unwrap_or("default");
        let needed = |key: &str| {
            number(key)
                .ok_or_else(|| LmError::Config(format!("`{key}` of `rope_scaling` is missing")))
        };
        let scaling = match form {
            "default" => match &self.rope_factors {
                Some(name) => Scaling::Factors(checkpoint.vector(name, turned / 2)?),
                None => Scaling::None,
            },
            "linear" => Scaling::Linear(needed("factor")?),
            "llama3" => Scaling::Llama3 {
                factor: needed("factor")?,
                low: needed("low_freq_factor")?,
                high: needed("high_freq_factor")?,
                original: needed("original_max_position_embeddings")?,
            },
            other => {
                return Err(LmError::Config(format!(
                    "`rope_type` is `{other}`; known are `default`, `linear` and `llama3`"
                )));
            }
        };
        Ok(Rotary::new(turned, theta, &scaling))
    }

    /// The rotary of layers of a kind that never scales.
    pub(crate) fn own_rotary(&self, kind: &str, turned: usize, theta: f64) -> Rotary {
        let own = self.rope_parameters.as_ref().and_then(|all| all.get(kind));
        let theta = own
            .and_then(|own| own.get("rope_theta")?.as_f64())
            .unwrap_or(theta);
        Rotary::new(turned, theta, &Scaling::None)
    }
}

/// Reads a part of the configuration.
fn parse<'a, T: Deserialize<'a>>(config: &'a Value) -> Result<T, LmError> {
    T::deserialize(config).map_err(|error| LmError::Config(error.to_string()))
}

/// The architecture and shape of a checkpoint.
pub(crate) fn describe(checkpoint: &Checkpoint) -> Result<(Architecture, Shape), LmError> {
    let name = checkpoint
        .config()
        .get("model_type")
        .and_then(Value::as_str)
        .unwrap_or("unnamed");
    let architecture = Architecture::ALL
        .into_iter()
        .find(|architecture| architecture.name() == name)
        .ok_or_else(|| LmError::Architecture {
            found: name.to_owned(),
            known: Architecture::ALL.map(Architecture::name).join("`, `"),
        })?;
    let shape: Shape = parse(checkpoint.config())?;
    shape.check()?;
    debug_assert_eq!(shape.model_type, name);
    Ok((architecture, shape))
}

/// Loads a checkpoint's decoder.
pub(crate) fn load(checkpoint: &Checkpoint, backend: Backend) -> Result<Decoder, LmError> {
    let (architecture, shape) = describe(checkpoint)?;
    let loader = Loader {
        checkpoint,
        backend,
    };
    match architecture {
        Architecture::Llama => llama::load(&shape, &loader),
        Architecture::Qwen2 => qwen2::load(&shape, &loader),
        Architecture::Qwen3 => qwen3::load(&shape, &loader),
        Architecture::Gemma3 => gemma3::load(&shape, &loader),
        Architecture::Qwen35 => qwen3_5::load(&shape, &loader),
    }
}

/// A decoder of these layers, with what is the same everywhere.
fn assemble(
    shape: &Shape,
    loader: &Loader<'_>,
    layers: Vec<Layer>,
    rotaries: Vec<Rotary>,
    norms_less_one: bool,
) -> Result<Decoder, LmError> {
    let (vocabulary, width) = (shape.vocab_size, shape.hidden_size);
    // Some files keep a copy of the embedding as the head; the configuration decides.
    let untied = !shape.tie_word_embeddings && loader.checkpoint.has("lm_head.weight");
    let head = untied.then(|| Embedding::load(loader, "lm_head", vocabulary, width));
    Ok(Decoder {
        embedding: Embedding::load(loader, "model.embed_tokens", vocabulary, width)?,
        embedding_scale: 1.0,
        layers,
        norm: loader.norm("model.norm", width, shape.rms_norm_eps, norms_less_one)?,
        head: head.transpose()?,
        rotaries,
        backend: loader.backend.clone(),
    })
}
