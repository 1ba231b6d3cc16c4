//! A GGUF file: names, configuration and tokenizer, in the words of the safetensors world.

use std::{
    fs::File,
    io::{BufReader, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use candle_core::quantized::{
    GgmlDType,
    gguf_file::{Content, Value as Meta},
};
use serde_json::{Map, Value, json};

use super::{Kind, Raw};
use crate::LmError;

pub(super) struct Gguf {
    path: PathBuf,
    content: Content,
    config: Value,
    vocabulary: Vocabulary,
}

/// A tokenizer as a GGUF file holds it.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary {
    /// `gpt2` is byte-level BPE, `llama` is SentencePiece.
    pub(crate) model: String,
    /// Which rules split a text before BPE.
    pub(crate) variant: String,
    pub(crate) tokens: Vec<String>,
    pub(crate) kinds: Vec<u64>,
    pub(crate) scores: Vec<f32>,
    pub(crate) merges: Vec<String>,
    pub(crate) beginning: Option<u32>,
    pub(crate) end: Option<u32>,
    /// Texts begin with the token for beginnings.
    pub(crate) adds_beginning: bool,
    /// SentencePiece reads texts as if a space stood before them.
    pub(crate) adds_space: bool,
    pub(crate) template: Option<String>,
    pub(crate) name: Option<String>,
}

impl Gguf {
    pub(super) fn open(path: &Path) -> Result<Self, LmError> {
        let shown = || path.display().to_string();
        let file = File::open(path).map_err(|error| LmError::Io {
            path: shown(),
            error,
        })?;
        let size = file
            .metadata()
            .map_err(|error| LmError::Io {
                path: shown(),
                error,
            })?
            .len();
        let damaged = |message: String| LmError::Format {
            path: shown(),
            message,
        };
        let content = Content::read(&mut BufReader::new(file)).map_err(|error| {
            // Candle's errors carry a backtrace behind their first line.
            damaged(
                error
                    .to_string()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
        })?;
        for (name, info) in &content.tensor_infos {
            let bytes = kind(info.ggml_dtype).bytes(info.shape.elem_count());
            let bytes = bytes.ok_or_else(|| damaged(format!("`{name}` fills no whole blocks")))?;
            let end = content.tensor_data_offset.checked_add(info.offset);
            let end = end.and_then(|end| end.checked_add(bytes as u64));
            if end.is_none_or(|end| end > size) {
                let message = format!("it is cut short: `{name}` does not end within {size} bytes");
                return Err(damaged(message));
            }
        }
        let reader = Metadata(&content);
        let config = reader.config()?;
        let vocabulary = reader.vocabulary();
        Ok(Self {
            path: path.to_owned(),
            content,
            config,
            vocabulary,
        })
    }

    pub(super) fn config(&self) -> &Value {
        &self.config
    }

    pub(super) fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    pub(super) fn inventory(&self) -> Vec<(String, Kind, usize)> {
        let tensors = self.content.tensor_infos.iter();
        let mut all: Vec<_> = tensors
            .map(|(name, info)| (name.clone(), kind(info.ggml_dtype), info.shape.elem_count()))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn architecture(&self) -> &str {
        self.config
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.content
            .tensor_infos
            .contains_key(&translated(self.architecture(), name))
    }

    pub(super) fn read(&self, name: &str) -> Result<Raw, LmError> {
        let own = translated(self.architecture(), name);
        let info = self.content.tensor_infos.get(&own).ok_or_else(|| {
            LmError::Missing(format!("{own}` (`{name}`) of `{}", self.path.display()))
        })?;
        let kind = kind(info.ggml_dtype);
        let shape = info.shape.dims().to_vec();
        let io = |error| LmError::Io {
            path: self.path.display().to_string(),
            error,
        };
        let mut file = File::open(&self.path).map_err(io)?;
        file.seek(SeekFrom::Start(
            self.content.tensor_data_offset + info.offset,
        ))
        .map_err(io)?;
        let mut bytes = vec![0; kind.bytes(info.shape.elem_count()).unwrap_or_default()];
        file.read_exact(&mut bytes).map_err(io)?;
        let mut raw = Raw { shape, kind, bytes };
        self.untangle(name, &mut raw)?;
        Ok(raw)
    }

    /// Undoes what the conversion to GGUF did to a tensor.
    fn untangle(&self, name: &str, raw: &mut Raw) -> Result<(), LmError> {
        if self.architecture() == "llama" {
            // Rotary pairs lie side by side there, half a head apart here.
            let heads = match name.rsplit('.').nth(1) {
                Some("q_proj") => "num_attention_heads",
                Some("k_proj") => "num_key_value_heads",
                _ => return Ok(()),
            };
            let heads = self
                .config
                .get(heads)
                .and_then(Value::as_u64)
                .unwrap_or(1)
                .max(1);
            let heads = usize::try_from(heads).unwrap_or(1);
            let rows = raw.shape.first().copied().unwrap_or_default();
            if !rows.is_multiple_of(heads) || !(rows / heads).is_multiple_of(2) {
                return Err(LmError::Config(format!(
                    "{rows} rows of `{name}` are not {heads} heads"
                )));
            }
            let dim = rows / heads;
            raw.permute_rows(|row| {
                let (head, within) = (row / dim, row % dim);
                head * dim + within % (dim / 2) * 2 + within / (dim / 2)
            });
        }
        if name.ends_with(".A_log") {
            // Stored there as -exp of it.
            let values = raw.values()?;
            raw.kind = Kind::F32;
            raw.bytes = values
                .iter()
                .flat_map(|a| (-a).ln().to_le_bytes())
                .collect();
        }
        Ok(())
    }
}

fn kind(dtype: GgmlDType) -> Kind {
    match dtype {
        GgmlDType::F32 => Kind::F32,
        GgmlDType::F16 => Kind::F16,
        GgmlDType::BF16 => Kind::Bf16,
        other => Kind::Ggml(other),
    }
}

/// The name in a GGUF file.
pub(crate) fn translated(architecture: &str, name: &str) -> String {
    let Some(rest) = name.strip_prefix("model.layers.") else {
        return match name {
            "model.embed_tokens.weight" => "token_embd.weight",
            "model.norm.weight" => "output_norm.weight",
            "lm_head.weight" => "output.weight",
            other => other,
        }
        .to_owned();
    };
    let (layer, part) = rest.split_once('.').unwrap_or((rest, ""));
    let sandwich = architecture.starts_with("gemma");
    let own = match part {
        "linear_attn.A_log" => "ssm_a".to_owned(),
        "linear_attn.dt_bias" => "ssm_dt.bias".to_owned(),
        _ => {
            let (module, kind) = part.rsplit_once('.').unwrap_or((part, ""));
            let module = match module {
                "input_layernorm" => "attn_norm",
                "self_attn.q_proj" => "attn_q",
                "self_attn.k_proj" => "attn_k",
                "self_attn.v_proj" => "attn_v",
                "self_attn.o_proj" => "attn_output",
                "self_attn.q_norm" => "attn_q_norm",
                "self_attn.k_norm" => "attn_k_norm",
                "post_attention_layernorm" if sandwich => "post_attention_norm",
                "post_attention_layernorm" if architecture == "qwen3_5_text" => {
                    "post_attention_norm"
                }
                "post_attention_layernorm" | "pre_feedforward_layernorm" => "ffn_norm",
                "post_feedforward_layernorm" => "post_ffw_norm",
                "mlp.gate_proj" => "ffn_gate",
                "mlp.up_proj" => "ffn_up",
                "mlp.down_proj" => "ffn_down",
                "linear_attn.in_proj_qkv" => "attn_qkv",
                "linear_attn.in_proj_z" => "attn_gate",
                "linear_attn.in_proj_a" => "ssm_alpha",
                "linear_attn.in_proj_b" => "ssm_beta",
                "linear_attn.conv1d" => "ssm_conv1d",
                "linear_attn.norm" => "ssm_norm",
                "linear_attn.out_proj" => "ssm_out",
                other => other,
            };
            format!("{module}.{kind}")
        }
    };
    format!("blk.{layer}.{own}")
}

struct Metadata<'a>(&'a Content);

impl Metadata<'_> {
    fn get(&self, key: &str) -> Option<&Meta> {
        self.0.metadata.get(key)
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.get(key) {
            Some(Meta::String(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn whole(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(whole)
    }

    fn list(&self, key: &str) -> &[Meta] {
        match self.get(key) {
            Some(Meta::Array(values)) => values,
            _ => &[],
        }
    }

    fn strings(&self, key: &str) -> Vec<String> {
        let texts = self.list(key).iter();
        texts
            .filter_map(|text| text.to_string().ok().cloned())
            .collect()
    }

    /// The configuration as `config.json` would have it.
    fn config(&self) -> Result<Value, LmError> {
        let own = self
            .text("general.architecture")
            .ok_or_else(|| LmError::Config("the file names no architecture".to_owned()))?;
        let name = match own.as_str() {
            "gemma3" => "gemma3_text",
            "qwen35" => "qwen3_5_text",
            other => other,
        };
        let mut config = Map::new();
        config.insert("model_type".to_owned(), json!(name));
        let key = |suffix: &str| format!("{own}.{suffix}");
        let wholes = [
            ("hidden_size", "embedding_length"),
            ("num_hidden_layers", "block_count"),
            ("num_attention_heads", "attention.head_count"),
            ("num_key_value_heads", "attention.head_count_kv"),
            ("head_dim", "attention.key_length"),
            ("intermediate_size", "feed_forward_length"),
            ("max_position_embeddings", "context_length"),
            ("sliding_window", "attention.sliding_window"),
            (
                "_sliding_window_pattern",
                "attention.sliding_window_pattern",
            ),
            ("full_attention_interval", "full_attention_interval"),
            ("linear_conv_kernel_dim", "ssm.conv_kernel"),
            ("linear_key_head_dim", "ssm.state_size"),
            ("linear_num_key_heads", "ssm.group_count"),
            ("linear_num_value_heads", "ssm.time_step_rank"),
        ];
        for (theirs, suffix) in wholes {
            if let Some(value) = self.whole(&key(suffix)) {
                config.insert(theirs.to_owned(), json!(value));
            }
        }
        let inner = self.whole(&key("ssm.inner_size"));
        if let (Some(inner), Some(heads)) = (inner, self.whole(&key("ssm.time_step_rank"))) {
            config.insert(
                "linear_value_head_dim".to_owned(),
                json!(inner / heads.max(1)),
            );
        }
        let numbers = [
            ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
            ("rope_theta", "rope.freq_base"),
        ];
        for (theirs, suffix) in numbers {
            if let Some(Meta::F32(value)) = self.get(&key(suffix)) {
                config.insert(theirs.to_owned(), json!(value));
            }
        }
        if let Some(Meta::F32(scale)) = self.get(&key("attention.scale")) {
            let scalar = 1.0 / (f64::from(*scale) * f64::from(*scale));
            config.insert("query_pre_attn_scalar".to_owned(), json!(scalar));
        }
        let vocabulary = self.list("tokenizer.ggml.tokens").len();
        let embedding = self.0.tensor_infos.get("token_embd.weight");
        let rows = embedding.and_then(|info| info.shape.dims().first().copied());
        config.insert("vocab_size".to_owned(), json!(rows.unwrap_or(vocabulary)));
        let tied = !self.0.tensor_infos.contains_key("output.weight");
        config.insert("tie_word_embeddings".to_owned(), json!(tied));
        if own == "qwen35" {
            if let (Some(turned), Some(dim)) = (
                self.whole(&key("rope.dimension_count")),
                self.whole(&key("attention.key_length")),
            ) {
                config.insert(
                    "partial_rotary_factor".to_owned(),
                    json!(turned as f64 / dim as f64),
                );
            }
            // The conversion deals value heads out to key heads in turn.
            config.insert("value_heads_dealt".to_owned(), json!(true));
        }
        if self.0.tensor_infos.contains_key("rope_freqs.weight") {
            config.insert("rope_factors".to_owned(), json!("rope_freqs.weight"));
        }
        Ok(Value::Object(config))
    }

    fn vocabulary(&self) -> Vocabulary {
        let id = |key: &str| self.whole(key).and_then(|id| u32::try_from(id).ok());
        let model = self.text("tokenizer.ggml.model").unwrap_or_default();
        let scores = self.list("tokenizer.ggml.scores").iter();
        // What is true of SentencePiece alone, unless the file says otherwise.
        let flag = |name| match self.get(name) {
            Some(Meta::Bool(value)) => *value,
            _ => model == "llama",
        };
        Vocabulary {
            variant: self.text("tokenizer.ggml.pre").unwrap_or_default(),
            tokens: self.strings("tokenizer.ggml.tokens"),
            kinds: self
                .list("tokenizer.ggml.token_type")
                .iter()
                .filter_map(whole)
                .collect(),
            scores: scores.filter_map(|score| score.to_f32().ok()).collect(),
            merges: self.strings("tokenizer.ggml.merges"),
            beginning: id("tokenizer.ggml.bos_token_id"),
            end: id("tokenizer.ggml.eos_token_id"),
            adds_beginning: flag("tokenizer.ggml.add_bos_token"),
            adds_space: flag("tokenizer.ggml.add_space_prefix"),
            template: self.text("tokenizer.chat_template"),
            name: self.text("general.name"),
            model,
        }
    }
}

/// A whole number, however the file stores it.
fn whole(value: &Meta) -> Option<u64> {
    match *value {
        Meta::U8(n) => Some(n.into()),
        Meta::U16(n) => Some(n.into()),
        Meta::U32(n) => Some(n.into()),
        Meta::U64(n) => Some(n),
        Meta::I8(n) => n.try_into().ok(),
        Meta::I16(n) => n.try_into().ok(),
        Meta::I32(n) => n.try_into().ok(),
        Meta::I64(n) => n.try_into().ok(),
        _ => None,
    }
}
