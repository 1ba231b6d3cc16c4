//! The tokenizer that a GGUF file carries: byte-level BPE.

use candle_core::quantized::gguf_file::{Content, Value};
use tokenizers::{
    AddedToken, Tokenizer as Inner,
    decoders::byte_level::ByteLevel as ByteLevelDecoder,
    models::bpe::{BPE, Vocab},
    pre_tokenizers::{
        PreTokenizerWrapper, byte_level::ByteLevel, digits::Digits, sequence::Sequence,
    },
};

use crate::LmError;

/// The kind of a token that stands for control, not for text.
const CONTROL: u64 = 3;

#[derive(Debug)]
pub(crate) struct Tokenizer {
    inner: Inner,
    /// Ends a turn.
    pub(crate) end: u32,
    texts: Vec<String>,
    beginning: Option<u32>,
}

impl Tokenizer {
    pub(crate) fn read(content: &Content) -> Result<Self, LmError> {
        let model = text(content, "tokenizer.ggml.model")?;
        let variant = text(content, "tokenizer.ggml.pre")?;
        if model != "gpt2" || variant != "smollm" {
            return Err(LmError::Tokenizer(format!(
                "it is `{model}` with the rules of `{variant}`; known is `gpt2` with `smollm`"
            )));
        }
        let texts: Vec<String> = strings(content, "tokenizer.ggml.tokens")?;
        let merges = strings(content, "tokenizer.ggml.merges")?
            .into_iter()
            .map(|merge| {
                let pair = merge
                    .split_once(' ')
                    .map(|(a, b)| (a.to_owned(), b.to_owned()));
                pair.ok_or_else(|| LmError::Tokenizer(format!("`{merge}` is no merge of two")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let vocabulary: Vocab = texts.iter().cloned().zip(0..).collect();
        let failed = |error: tokenizers::Error| LmError::Tokenizer(error.to_string());
        let bpe = BPE::builder()
            .vocab_and_merges(vocabulary, merges)
            .build()
            .map_err(failed)?;
        let mut inner = Inner::new(bpe);
        inner.with_pre_tokenizer(Some(Sequence::new(vec![
            PreTokenizerWrapper::Digits(Digits::new(true)),
            PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, true)),
        ])));
        inner.with_decoder(Some(ByteLevelDecoder::default()));

        let kinds = list(content, "tokenizer.ggml.token_type")?;
        let special: Vec<AddedToken> = texts
            .iter()
            .zip(kinds)
            .filter(|(_, kind)| number(kind) == Some(CONTROL))
            .map(|(token, _)| AddedToken::from(token.clone(), true))
            .collect();
        inner.add_special_tokens(special).map_err(failed)?;
        let id = |key: &str| {
            content
                .metadata
                .get(key)
                .and_then(number)
                .map(|id| id as u32)
        };
        let end = id("tokenizer.ggml.eos_token_id")
            .ok_or_else(|| LmError::Tokenizer("it has no token that ends a turn".to_owned()))?;
        Ok(Self {
            inner,
            end,
            texts,
            beginning: id("tokenizer.ggml.bos_token_id"),
        })
    }

    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, LmError> {
        let encoding = self.inner.encode_fast(text, false);
        Ok(encoding
            .map_err(|error| LmError::Tokenizer(error.to_string()))?
            .get_ids()
            .to_vec())
    }

    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String, LmError> {
        self.inner
            .decode(ids, true)
            .map_err(|error| LmError::Tokenizer(error.to_string()))
    }

    /// The texts of the tokens that begin a text and end a turn.
    pub(crate) fn borders(&self) -> (String, String) {
        let text = |id: u32| self.texts.get(id as usize).cloned().unwrap_or_default();
        (self.beginning.map(text).unwrap_or_default(), text(self.end))
    }
}

fn missing(key: &str) -> LmError {
    LmError::Tokenizer(format!("the file has no `{key}`"))
}

pub(crate) fn text(content: &Content, key: &str) -> Result<String, LmError> {
    match content.metadata.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        _ => Err(missing(key)),
    }
}

fn list<'a>(content: &'a Content, key: &str) -> Result<&'a [Value], LmError> {
    match content.metadata.get(key) {
        Some(Value::Array(values)) => Ok(values),
        _ => Err(missing(key)),
    }
}

fn strings(content: &Content, key: &str) -> Result<Vec<String>, LmError> {
    let values = list(content, key)?.iter();
    values
        .map(|value| value.to_string().cloned().map_err(|_| missing(key)))
        .collect()
}

/// A whole number, however the file stores it.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match *value {
        Value::U8(n) => Some(n.into()),
        Value::U16(n) => Some(n.into()),
        Value::U32(n) => Some(n.into()),
        Value::U64(n) => Some(n),
        Value::I8(n) => n.try_into().ok(),
        Value::I16(n) => n.try_into().ok(),
        Value::I32(n) => n.try_into().ok(),
        Value::I64(n) => n.try_into().ok(),
        _ => None,
    }
}
