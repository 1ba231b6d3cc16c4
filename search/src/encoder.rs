//! An encoder of sentences: a small BERT whose mean over a text's tokens says what the text is about
//! (Reimers and Gurevych, "Sentence-BERT", arXiv 1908.10084).

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use candle_nn::{
    Embedding, LayerNorm, Linear, Module as _, VarBuilder, embedding, layer_norm, linear,
    ops::softmax_last_dim,
};
use serde::Deserialize;
use tokenizers::{Tokenizer, TruncationParams};

use crate::SearchError;

/// Texts that are read at once.
const BATCH: usize = 32;
/// Tokens of a text; the rest is not read.
const TOKENS: usize = 256;
/// Bounds on what a configuration may ask for.
const WIDEST: usize = 4096;
const DEEPEST: usize = 64;

/// An encoder that is loaded.
pub struct Encoder {
    tokenizer: Tokenizer,
    words: Embedding,
    positions: Embedding,
    kinds: Embedding,
    norm: LayerNorm,
    layers: Vec<Layer>,
    config: Config,
}

#[derive(Clone, Debug, Deserialize)]
struct Config {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    layer_norm_eps: f64,
    hidden_act: String,
    model_type: String,
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    mixed: Linear,
    mixed_norm: LayerNorm,
    wide: Linear,
    narrow: Linear,
    norm: LayerNorm,
}

impl Encoder {
    /// Loads `config.json`, `tokenizer.json` and `model.safetensors` of a folder.
    ///
    /// # Errors
    /// When a file is missing or broken, or the model is no BERT.
    pub fn open(folder: &Path) -> Result<Self, SearchError> {
        let no_encoder = |why: String| SearchError::NoEncoder {
            path: folder.display().to_string(),
            why,
        };
        let read = |name: &str| {
            let bytes = std::fs::read(folder.join(name));
            bytes.map_err(|error| no_encoder(format!("`{name}`: {error}")))
        };
        let config: Config = serde_json::from_slice(&read("config.json")?)
            .map_err(|error| no_encoder(format!("`config.json`: {error}")))?;
        config.check().map_err(no_encoder)?;
        let mut tokenizer = Tokenizer::from_bytes(read("tokenizer.json")?)
            .map_err(|error| no_encoder(format!("`tokenizer.json`: {error}")))?;
        let longest = TruncationParams {
            max_length: TOKENS.min(config.max_position_embeddings),
            ..TruncationParams::default()
        };
        tokenizer
            .with_padding(None)
            .with_truncation(Some(longest))
            .map_err(|error| no_encoder(error.to_string()))?;
        let weights = read("model.safetensors")?;
        let load = || {
            let root = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu)?;
            // Some checkpoints keep the model under its name.
            let root = if root.contains_tensor("bert.embeddings.word_embeddings.weight") {
                root.pp("bert")
            } else {
                root
            };
            Self::load(tokenizer, &config, &root)
        };
        load().map_err(|error: candle_core::Error| no_encoder(error.to_string()))
    }

    fn load(
        tokenizer: Tokenizer,
        config: &Config,
        root: &VarBuilder<'_>,
    ) -> candle_core::Result<Self> {
        let width = config.hidden_size;
        let parts = root.pp("embeddings");
        let norm = |at: VarBuilder<'_>| layer_norm(width, config.layer_norm_eps, at);
        let layers = (0..config.num_hidden_layers).map(|index| {
            let layer = root.pp(format!("encoder.layer.{index}"));
            let own = layer.pp("attention.self");
            Ok(Layer {
                query: linear(width, width, own.pp("query"))?,
                key: linear(width, width, own.pp("key"))?,
                value: linear(width, width, own.pp("value"))?,
                mixed: linear(width, width, layer.pp("attention.output.dense"))?,
                mixed_norm: norm(layer.pp("attention.output.LayerNorm"))?,
                wide: linear(
                    width,
                    config.intermediate_size,
                    layer.pp("intermediate.dense"),
                )?,
                narrow: linear(config.intermediate_size, width, layer.pp("output.dense"))?,
                norm: norm(layer.pp("output.LayerNorm"))?,
            })
        });
        let layers = layers.collect::<candle_core::Result<_>>()?;
        Ok(Self {
            tokenizer,
            words: embedding(config.vocab_size, width, parts.pp("word_embeddings"))?,
            positions: embedding(
                config.max_position_embeddings,
                width,
                parts.pp("position_embeddings"),
            )?,
            kinds: embedding(
                config.type_vocab_size,
                width,
                parts.pp("token_type_embeddings"),
            )?,
            norm: norm(parts.pp("LayerNorm"))?,
            layers,
            config: config.clone(),
        })
    }

    /// Numbers of a vector.
    #[must_use]
    pub fn width(&self) -> usize {
        self.config.hidden_size
    }

    /// A vector of length one for each text.
    ///
    /// # Errors
    /// When a text can't be read, or the computation fails.
    pub fn encode(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, SearchError> {
        let mut vectors = vec![Vec::new(); texts.len()];
        let failed = |why: String| SearchError::Encoder { why };
        let mut tokens = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let encoded = self.tokenizer.encode_fast(*text, true);
            let encoded = encoded.map_err(|error| failed(error.to_string()))?;
            tokens.push((index, encoded.get_ids().to_vec()));
        }
        // Texts of about one length together, so that little is filled up.
        tokens.sort_by_key(|(_, ids)| ids.len());
        for batch in tokens.chunks(BATCH) {
            let ids: Vec<&[u32]> = batch.iter().map(|(_, ids)| ids.as_slice()).collect();
            let found = self
                .forward(&ids)
                .map_err(|error| failed(error.to_string()))?;
            for ((index, _), vector) in batch.iter().zip(found) {
                vectors[*index] = vector;
            }
        }
        Ok(vectors)
    }

    fn forward(&self, batch: &[&[u32]]) -> candle_core::Result<Vec<Vec<f32>>> {
        let device = &Device::Cpu;
        let longest = batch.iter().map(|ids| ids.len()).max().unwrap_or(0).max(1);
        let mut ids = Vec::with_capacity(batch.len() * longest);
        let mut real = Vec::with_capacity(batch.len() * longest);
        for row in batch {
            ids.extend((0..longest).map(|at| row.get(at).copied().unwrap_or(0)));
            real.extend((0..longest).map(|at| f32::from(u8::from(at < row.len()))));
        }
        let shape = (batch.len(), longest);
        let ids = Tensor::from_vec(ids, shape, device)?;
        let real = Tensor::from_vec(real, shape, device)?;
        let places = Tensor::arange(0, longest as u32, device)?;
        let kinds = Tensor::zeros(shape, DType::U32, device)?;
        let mut hidden = self
            .words
            .forward(&ids)?
            .broadcast_add(&self.positions.forward(&places)?)?
            .add(&self.kinds.forward(&kinds)?)?;
        hidden = self.norm.forward(&hidden)?;
        // What fills up is looked at by nobody.
        let hide = ((&real - 1.0)? * 1e9)?.reshape((batch.len(), 1, 1, longest))?;
        for layer in &self.layers {
            hidden = layer.forward(&hidden, &hide, self.config.num_attention_heads)?;
        }
        let real = real.unsqueeze(2)?;
        let sum = hidden.broadcast_mul(&real)?.sum(1)?;
        let mean = sum.broadcast_div(&real.sum(1)?.maximum(1e-9)?)?;
        let length = mean.sqr()?.sum_keepdim(1)?.sqrt()?.maximum(1e-12)?;
        mean.broadcast_div(&length)?.to_vec2()
    }
}

impl Config {
    fn check(&self) -> Result<(), String> {
        if self.model_type != "bert" || self.hidden_act != "gelu" {
            return Err(format!(
                "it is `{}` with `{}`, and `bert` with `gelu` is known",
                self.model_type, self.hidden_act
            ));
        }
        let heads = self.num_attention_heads;
        let sizes = [
            self.hidden_size,
            self.intermediate_size / 4,
            self.max_position_embeddings / 8,
        ];
        let possible = sizes.iter().all(|size| (1..=WIDEST).contains(size))
            && (1..=DEEPEST).contains(&self.num_hidden_layers)
            && heads > 0
            && self.hidden_size.is_multiple_of(heads);
        if possible {
            Ok(())
        } else {
            Err(format!("its sizes are not possible: {self:?}"))
        }
    }
}

impl Layer {
    fn forward(&self, hidden: &Tensor, hide: &Tensor, heads: usize) -> candle_core::Result<Tensor> {
        let (batch, length, width) = hidden.dims3()?;
        let head = width / heads;
        let split = |x: Tensor| {
            x.reshape((batch, length, heads, head))?
                .transpose(1, 2)?
                .contiguous()
        };
        let query = split(self.query.forward(hidden)?)?;
        let key = split(self.key.forward(hidden)?)?;
        let value = split(self.value.forward(hidden)?)?;
        let scores = (query.matmul(&key.t()?)? * (head as f64).powf(-0.5))?;
        let shares = softmax_last_dim(&scores.broadcast_add(hide)?)?;
        let mixed = shares
            .matmul(&value)?
            .transpose(1, 2)?
            .reshape((batch, length, width))?;
        let hidden = self
            .mixed_norm
            .forward(&(self.mixed.forward(&mixed)? + hidden)?)?;
        let wide = self.wide.forward(&hidden)?.gelu_erf()?;
        self.norm.forward(&(self.narrow.forward(&wide)? + hidden)?)
    }
}

/// Where an encoder lies, and what it is: a hash of its weights.
///
/// # Errors
/// When its weights can't be read.
pub(crate) fn identity(folder: &Path) -> Result<(PathBuf, String), SearchError> {
    use sha2::{Digest as _, Sha256};

    let io = |error| SearchError::Io {
        path: folder.display().to_string(),
        error,
    };
    let mut hasher = Sha256::new();
    let mut weights = std::fs::File::open(folder.join("model.safetensors")).map_err(io)?;
    std::io::copy(&mut weights, &mut hasher).map_err(io)?;
    let whole = std::fs::canonicalize(folder).map_err(io)?;
    Ok((whole, format!("{:x}", hasher.finalize())))
}

/// The product of two vectors of length one: how near they are.
pub(crate) fn nearness(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Made {
        texts: Vec<String>,
        vectors: Vec<Vec<f32>>,
    }

    fn fixture() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/bert")
    }

    /// A tiny random model, and what transformers computes with it; `fixtures/make_bert.py`.
    #[test]
    fn vectors_are_those_of_transformers() {
        let made = std::fs::read(fixture().join("vectors.json")).unwrap();
        let made: Made = serde_json::from_slice(&made).unwrap();
        let encoder = Encoder::open(&fixture()).unwrap();
        let texts: Vec<&str> = made.texts.iter().map(String::as_str).collect();
        let found = encoder.encode(&texts).unwrap();
        for ((found, expected), text) in found.iter().zip(&made.vectors).zip(texts) {
            assert_eq!(found.len(), encoder.width());
            let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
            let off = off.fold(0.0, f32::max);
            assert!(off < 1e-4, "{off} for {text:?}");
        }
    }

    #[test]
    fn what_is_no_encoder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Encoder::open(folder.path()).is_err());
        for name in ["config.json", "tokenizer.json", "model.safetensors"] {
            std::fs::copy(fixture().join(name), folder.path().join(name)).unwrap();
        }
        assert!(Encoder::open(folder.path()).is_ok());
        let config = std::fs::read_to_string(fixture().join("config.json")).unwrap();
        for (from, to) in [
            ("\"model_type\": \"bert\"", "\"model_type\": \"llama\""),
            ("\"num_attention_heads\": 4", "\"num_attention_heads\": 0"),
            ("\"hidden_size\": 32", "\"hidden_size\": 64"),
        ] {
            assert!(config.contains(from), "{from}");
            std::fs::write(folder.path().join("config.json"), config.replace(from, to)).unwrap();
            assert!(Encoder::open(folder.path()).is_err(), "{to}");
        }
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), "no").unwrap();
        assert!(Encoder::open(folder.path()).is_err());
    }
}
