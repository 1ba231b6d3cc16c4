//! A model's tokenizer, whatever file it comes from.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokenizers::Tokenizer as Inner;

use super::{Template, vocabulary};
use crate::{
    LmError,
    weights::{Checkpoint, json},
};

/// The longest text that is tokenized.
const LONGEST_TEXT: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Tokenizer {
    inner: Inner,
    /// Each ends a turn or a text.
    pub(crate) ends: BTreeSet<u32>,
    /// The token for a text's beginning, which raw prompts get.
    beginning: Option<u32>,
    /// Tokens that stand for control: they have no text.
    control: BTreeSet<u32>,
}

impl Tokenizer {
    /// The tokenizer and the chat template of a checkpoint.
    pub(crate) fn open(checkpoint: &Checkpoint) -> Result<(Self, Option<Template>), LmError> {
        match checkpoint.vocabulary() {
            Some(vocabulary) => {
                let tokenizer = vocabulary::build(vocabulary)?;
                let source = vocabulary.template.as_deref();
                let text = |id: Option<u32>| id.and_then(|id| tokenizer.inner.id_to_token(id));
                let borders = (text(vocabulary.beginning), text(vocabulary.end));
                let template = source.map(|source| template(source, borders)).transpose()?;
                Ok((tokenizer, template))
            }
            None => Self::folder(checkpoint.path(), checkpoint.config()),
        }
    }

    /// From `tokenizer.json` and what lies beside it.
    fn folder(folder: &Path, config: &Value) -> Result<(Self, Option<Template>), LmError> {
        let path = folder.join("tokenizer.json");
        let inner = Inner::from_file(&path)
            .map_err(|error| LmError::Tokenizer(format!("`{}`: {error}", path.display())))?;
        let optional = |name: &str| -> Result<Value, LmError> {
            let path = folder.join(name);
            if path.exists() {
                json(&path)
            } else {
                Ok(Value::Null)
            }
        };
        let (settings, generation) = (
            optional("tokenizer_config.json")?,
            optional("generation_config.json")?,
        );
        // A token is written as a text or as an object that holds it.
        let token = |key: &str| {
            let value = settings.get(key)?;
            let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
            Some(text.to_owned())
        };
        let mut ends: BTreeSet<u32> = [config, &generation]
            .into_iter()
            .filter_map(|of| of.get("eos_token_id"))
            .flat_map(|value| {
                value
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![value.clone()])
            })
            .filter_map(|id| u32::try_from(id.as_u64()?).ok())
            .collect();
        ends.extend(token("eos_token").and_then(|text| inner.token_to_id(&text)));
        let adds = settings.get("add_bos_token").and_then(Value::as_bool);
        // Without a word on it, what the tokenizer itself adds to a text decides.
        let added = inner
            .encode("", true)
            .ok()
            .and_then(|text| text.get_ids().first().copied());
        let named = token("bos_token").and_then(|text| inner.token_to_id(&text));
        let beginning = match adds {
            Some(true) => named,
            Some(false) => None,
            None => added.filter(|id| !ends.contains(id)),
        };
        let source = settings
            .get("chat_template")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let file = folder.join("chat_template.jinja");
        let source = match source {
            None if file.exists() => {
                Some(std::fs::read_to_string(&file).map_err(|error| LmError::Io {
                    path: file.display().to_string(),
                    error,
                })?)
            }
            source => source,
        };
        let borders = (token("bos_token"), token("eos_token"));
        let template = source
            .map(|source| template(&source, borders))
            .transpose()?;
        Ok((Self::new(inner, ends, beginning)?, template))
    }

    pub(super) fn new(
        inner: Inner,
        ends: BTreeSet<u32>,
        beginning: Option<u32>,
    ) -> Result<Self, LmError> {
        if ends.is_empty() {
            return Err(LmError::Tokenizer(
                "it has no token that ends a turn".to_owned(),
            ));
        }
        let special = inner.get_added_tokens_decoder();
        let control = special
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| *id)
            .collect();
        Ok(Self {
            inner,
            ends,
            beginning,
            control,
        })
    }

    /// Writes `tokenizer.json` and `tokenizer_config.json`.
    pub(crate) fn save(
        &self,
        folder: &Path,
        template: Option<&str>,
        beginning: Option<u32>,
        end: Option<u32>,
    ) -> Result<(), LmError> {
        let path = folder.join("tokenizer.json");
        self.inner
            .save(&path, false)
            .map_err(|error| LmError::Tokenizer(format!("`{}`: {error}", path.display())))?;
        let text = |id: Option<u32>| id.and_then(|id| self.inner.id_to_token(id));
        let settings = serde_json::json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": self.beginning.is_some(),
            "bos_token": text(beginning),
            "eos_token": text(end),
            "chat_template": template,
        });
        let path = folder.join("tokenizer_config.json");
        std::fs::write(&path, format!("{settings:#}\n")).map_err(|error| LmError::Io {
            path: path.display().to_string(),
            error,
        })
    }

    /// What tells this tokenizer from others: the SHA-256 of all that it is made of.
    pub(crate) fn hash(&self) -> Result<String, LmError> {
        let json = self.inner.to_string(false);
        let json = json.map_err(|error| LmError::Tokenizer(error.to_string()))?;
        // Maps are written in no order of their own.
        let json: Value =
            serde_json::from_str(&json).map_err(|error| LmError::Tokenizer(error.to_string()))?;
        let mut hasher = Sha256::new();
        hash_value(&json, &mut hasher);
        Ok(format!("{:x}", hasher.finalize()))
    }

    /// A text as it is, control tokens that are written out included.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, LmError> {
        if text.len() > LONGEST_TEXT {
            return Err(LmError::Setting {
                name: "prompt",
                value: format!("{} bytes long", text.len()),
                bounds: "at most 16 MiB",
            });
        }
        let encoding = self.inner.encode_fast(text, false);
        let encoding = encoding.map_err(|error| LmError::Tokenizer(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// A text with the token for its beginning, where the model wants one.
    pub(crate) fn encode_raw(&self, text: &str) -> Result<Vec<u32>, LmError> {
        let mut ids = self.encode(text)?;
        if let Some(beginning) = self.beginning
            && ids.first() != Some(&beginning)
        {
            ids.insert(0, beginning);
        }
        Ok(ids)
    }

    /// Token ids as text, without the tokens that stand for control.
    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String, LmError> {
        self.inner
            .decode(ids, true)
            .map_err(|error| LmError::Tokenizer(error.to_string()))
    }

    /// How a token is written in the vocabulary.
    pub(crate) fn written(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    pub(crate) fn is_control(&self, id: u32) -> bool {
        self.control.contains(&id)
    }

    /// The bytes that a token stands for in a text; none for control tokens and gaps.
    pub(crate) fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        if self.is_control(id) {
            return None;
        }
        vocabulary::bytes(&self.inner, &self.inner.id_to_token(id)?)
    }
}

/// Hashes JSON with the keys of objects in order.
fn hash_value(value: &Value, hasher: &mut Sha256) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            hasher.update([b'{']);
            for (key, value) in fields {
                hasher.update((key.len() as u64).to_le_bytes());
                hasher.update(key);
                hash_value(value, hasher);
            }
            hasher.update([b'}']);
        }
        Value::Array(values) => {
            hasher.update([b'[']);
            values.iter().for_each(|value| hash_value(value, hasher));
            hasher.update([b']']);
        }
        plain => {
            let text = plain.to_string();
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
    }
}

fn template(
    source: &str,
    (beginning, end): (Option<String>, Option<String>),
) -> Result<Template, LmError> {
    Template::new(
        source,
        beginning.unwrap_or_default(),
        end.unwrap_or_default(),
    )
}
