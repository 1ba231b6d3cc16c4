//! A model that is loaded: its decoder, tokenizer and chat template.

use std::path::Path;

use candle_core::{DType, Device};

use crate::{
    Architecture, ChatMessage, LmError, Tool, arch,
    blocks::{Backend, Decoder},
    text::{Template, Tokenizer},
    weights::{Checkpoint, Kind},
};

/// Where and how a model computes.
#[derive(Clone, Debug, Default)]
pub enum Compute {
    /// On the processor, with this crate's kernels, on weights as narrow as they are stored.
    #[default]
    Kernels,
    /// The same with weights that are widened to 32 bits: what a trainer computes, up to the order of
    /// sums. Weights that are stored in 4 or 8 bits are multiplied with rows that are rounded to 8,
    /// as other engines do it; this spares the rounding for memory and time.
    Widened,
    /// On a device of candle's, on weights that are widened to a precision.
    Candle(Device, DType),
}

impl Compute {
    /// From what a user writes: `cpu`, `cuda:N` or `metal`.
    ///
    /// # Errors
    /// When there is no such device, or this build has no support for it.
    pub fn parse(text: &str) -> Result<Self, LmError> {
        let unknown = || LmError::Setting {
            name: "device",
            value: text.to_owned(),
            bounds: "`cpu`, `cuda:N` or `metal`",
        };
        let (kind, index) = text.split_once(':').unwrap_or((text, "0"));
        let index: usize = index.parse().map_err(|_| unknown())?;
        let missing = |_| LmError::Setting {
            name: "device",
            value: text.to_owned(),
            bounds: "a device that is there and that this program was built for, with \
                     `--features cuda` or `--features metal`",
        };
        match kind {
            "cpu" => Ok(Self::Kernels),
            "cuda" => Ok(Self::Candle(
                Device::new_cuda(index).map_err(missing)?,
                DType::BF16,
            )),
            "metal" => Ok(Self::Candle(
                Device::new_metal(index).map_err(missing)?,
                DType::F32,
            )),
            _ => Err(unknown()),
        }
    }

    fn backend(&self) -> Backend {
        match self {
            Self::Kernels => Backend::Kernels { widen: false },
            Self::Widened => Backend::Kernels { widen: true },
            Self::Candle(device, dtype) => Backend::Candle {
                device: device.clone(),
                dtype: *dtype,
                frozen: false,
            },
        }
    }
}

/// A model.
pub struct Model {
    pub(crate) decoder: Decoder,
    pub(crate) tokenizer: Tokenizer,
    template: Option<Template>,
    name: String,
    hash: String,
    context: usize,
    architecture: Architecture,
}

/// What a checkpoint is, from its headers alone.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its architecture.
    pub architecture: Architecture,
    /// How many weights it has.
    pub weights: usize,
    /// How they are stored: each kind with its share of the weights.
    pub kinds: Vec<(String, f64)>,
    /// Layers.
    pub layers: usize,
    /// The width of a row.
    pub width: usize,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// The longest prompt and reply together, in tokens.
    pub context: usize,
    /// It has a chat template.
    pub chat: bool,
    /// The SHA-256 of its weights' files.
    pub hash: String,
}

impl Model {
    /// Loads a GGUF file or a folder with safetensors.
    ///
    /// # Errors
    /// When it can't be read, is damaged, or is of a kind that is not known here.
    pub fn load(path: &Path, compute: &Compute) -> Result<Self, LmError> {
        let checkpoint = Checkpoint::open(path)?;
        let (architecture, shape) = arch::describe(&checkpoint)?;
        let (tokenizer, template) = Tokenizer::open(&checkpoint)?;
        let decoder = arch::load(&checkpoint, compute.backend())?;
        let named = checkpoint
            .vocabulary()
            .and_then(|vocabulary| vocabulary.name.clone());
        let stem = || {
            path.file_stem()
                .map(|stem| stem.to_string_lossy().into_owned())
        };
        Ok(Self {
            name: named.or_else(stem).unwrap_or_else(|| "local".to_owned()),
            hash: checkpoint.hash()?,
            context: shape.context(),
            decoder,
            tokenizer,
            template,
            architecture,
        })
    }

    /// Says what a checkpoint is without loading its weights.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn describe(path: &Path) -> Result<Description, LmError> {
        let checkpoint = Checkpoint::open(path)?;
        let (architecture, shape) = arch::describe(&checkpoint)?;
        let (_, template) = Tokenizer::open(&checkpoint)?;
        let inventory = checkpoint.inventory();
        let weights: usize = inventory.iter().map(|(_, _, count)| count).sum();
        let mut kinds: Vec<(String, usize)> = Vec::new();
        for (_, kind, count) in &inventory {
            let name = match kind {
                Kind::Ggml(kind) => format!("{kind:?}"),
                kind => format!("{kind:?}"),
            };
            match kinds.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += count,
                None => kinds.push((name, *count)),
            }
        }
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let share = |count: usize| count as f64 / weights.max(1) as f64;
        Ok(Description {
            architecture,
            weights,
            kinds: kinds
                .into_iter()
                .map(|(name, count)| (name, share(count)))
                .collect(),
            layers: shape.num_hidden_layers,
            width: shape.hidden_size,
            vocabulary: shape.vocab_size,
            context: shape.context(),
            chat: template.is_some(),
            hash: checkpoint.hash()?,
        })
    }

    /// What the file calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The SHA-256 of its weights' files, in hexadecimal.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The longest prompt and reply together, in tokens.
    #[must_use]
    pub fn context(&self) -> usize {
        self.context
    }

    /// Its architecture.
    #[must_use]
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// The bytes that its matrices take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.decoder.bytes()
    }

    /// What tells its tokenizer from others.
    ///
    /// # Errors
    /// When the tokenizer can't be written down.
    pub fn tokenizer_hash(&self) -> Result<String, LmError> {
        self.tokenizer.hash()
    }

    /// Token ids that there are.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.decoder.vocabulary()
    }

    /// A conversation as token ids, ready for the model's turn.
    ///
    /// # Errors
    /// When the model has no chat template, or it does not take these messages or tools.
    pub fn encode_chat(
        &self,
        messages: &[ChatMessage],
        tools: &[Tool],
    ) -> Result<Vec<u32>, LmError> {
        let template = self.template.as_ref().ok_or(LmError::NoTemplate)?;
        self.tokenizer.encode(&template.render(messages, tools)?)
    }

    /// A raw prompt as token ids, with the token for its beginning where the model wants one.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, LmError> {
        self.tokenizer.encode_raw(text)
    }

    /// A text as token ids, as it is.
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

    /// The bytes of a token's text; a control token's are those of its name.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let name = || self.tokenizer.written(id).unwrap_or_default().into_bytes();
        self.tokenizer.bytes(id).unwrap_or_else(name)
    }
}
