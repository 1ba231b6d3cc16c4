//! The fixtures once more, converted to GGUF as llama.cpp's conversion does it: names, turned heads,
//! dealt heads and norms with one added are all undone.

use std::collections::HashMap;

use candle_core::{
    DType, Device, Tensor,
    quantized::{
        GgmlDType, QTensor,
        gguf_file::{self, Value},
    },
};

use super::{
    load,
    reference::{fixtures, prompts, span},
};
use crate::{
    blocks::{Backend, Memory},
    weights::{Checkpoint, translated},
};

/// Rows of heads: each `dim` rows; head `to` is what head `from(to)` was.
fn move_heads(x: &Tensor, dim: usize, from: impl Fn(usize) -> usize) -> Tensor {
    let rows = x.dim(0).unwrap();
    let order: Vec<u32> = (0..rows)
        .map(|row| (from(row / dim) * dim + row % dim) as u32)
        .collect();
    x.index_select(&Tensor::new(order, x.device()).unwrap(), 0)
        .unwrap()
}

/// What the conversion does to a tensor.
fn tangled(family: &str, name: &str, x: &Tensor) -> Tensor {
    let turned = |heads: usize| {
        let (rows, inputs) = x.dims2().unwrap();
        let halves = x.reshape((heads, 2, rows / heads / 2, inputs)).unwrap();
        halves
            .transpose(1, 2)
            .unwrap()
            .contiguous()
            .unwrap()
            .reshape((rows, inputs))
            .unwrap()
    };
    // Four value heads of two key heads: 0 1 2 3 become 0 2 1 3.
    let dealt = |x: &Tensor, dim: usize| move_heads(x, dim, |to| to % 2 * 2 + to / 2);
    match (family, name) {
        ("llama", _) if name.contains("q_proj") => turned(4),
        ("llama", _) if name.contains("k_proj") => turned(2),
        ("gemma3", _) if name.ends_with("norm.weight") => (x + 1.0).unwrap(),
        ("qwen3_5", _) if name.ends_with("A_log") => dealt(&x.exp().unwrap().neg().unwrap(), 1),
        ("qwen3_5", _) if name.ends_with("dt_bias") => dealt(x, 1),
        ("qwen3_5", _) if name.contains("in_proj_a") || name.contains("in_proj_b") => dealt(x, 1),
        ("qwen3_5", _) if name.contains("in_proj_z") => dealt(x, 12),
        ("qwen3_5", _) if name.contains("in_proj_qkv") || name.contains("conv1d") => {
            let x = if x.rank() == 3 {
                x.squeeze(1).unwrap()
            } else {
                x.clone()
            };
            let keys = 2 * 2 * 16;
            let values = x.narrow(0, keys, 48).unwrap().contiguous().unwrap();
            Tensor::cat(&[x.narrow(0, 0, keys).unwrap(), dealt(&values, 12)], 0).unwrap()
        }
        ("qwen3_5", _) if name.contains("linear_attn.out_proj") => {
            dealt(&x.t().unwrap().contiguous().unwrap(), 12)
                .t()
                .unwrap()
                .contiguous()
                .unwrap()
        }
        ("qwen3_5", _) if name.ends_with("norm.weight") && !name.contains("linear_attn") => {
            (x + 1.0).unwrap()
        }
        _ => x.clone(),
    }
}

fn metadata(family: &str, config: &serde_json::Value) -> Vec<(String, Value)> {
    let own = match family {
        "qwen3_5" => "qwen35",
        other => other,
    };
    let number = |key: &str| config[key].as_u64().map(|n| n as u32);
    let mut all = vec![(
        "general.architecture".to_owned(),
        Value::String(own.to_owned()),
    )];
    let mut add = |suffix: &str, value: Option<Value>| {
        all.extend(value.map(|value| (format!("{own}.{suffix}"), value)));
    };
    let head_dim = number("head_dim").or(Some(8));
    for (suffix, value) in [
        ("embedding_length", number("hidden_size")),
        ("block_count", number("num_hidden_layers")),
        ("attention.head_count", number("num_attention_heads")),
        ("attention.head_count_kv", number("num_key_value_heads")),
        ("attention.key_length", head_dim),
        ("feed_forward_length", number("intermediate_size")),
        ("context_length", number("max_position_embeddings")),
        ("attention.sliding_window", number("sliding_window")),
        ("ssm.conv_kernel", number("linear_conv_kernel_dim")),
        ("ssm.state_size", number("linear_key_head_dim")),
        ("ssm.group_count", number("linear_num_key_heads")),
        ("ssm.time_step_rank", number("linear_num_value_heads")),
        (
            "ssm.inner_size",
            number("linear_value_head_dim").map(|dim| dim * 4),
        ),
    ] {
        add(suffix, value.map(Value::U32));
    }
    let theta = config["rope_parameters"]["rope_theta"].as_f64();
    let theta = theta.or(config["rope_parameters"]["full_attention"]["rope_theta"].as_f64());
    add("attention.layer_norm_rms_epsilon", Some(Value::F32(1e-6)));
    add(
        "rope.freq_base",
        theta.map(|theta| Value::F32(theta as f32)),
    );
    if family == "gemma3" {
        add("attention.sliding_window_pattern", Some(Value::U32(2)));
        add("attention.scale", Some(Value::F32(24f32.powf(-0.5))));
    }
    if family == "qwen3_5" {
        add("rope.dimension_count", Some(Value::U32(4)));
    }
    all
}

#[test]
fn converted_models_have_the_reference_logits() {
    for family in ["llama", "qwen2", "qwen3", "gemma3", "qwen3_5"] {
        let folder = fixtures().join(family);
        let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        let model_type = config["model_type"].as_str().unwrap();
        let tensors =
            candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu);
        let tensors: Vec<(String, QTensor)> = tensors
            .unwrap()
            .iter()
            .map(|(name, tensor)| {
                let tensor = tangled(family, name, &tensor.to_dtype(DType::F32).unwrap());
                let stored = QTensor::quantize(&tensor, GgmlDType::F32).unwrap();
                (translated(model_type, name), stored)
            })
            .collect();
        let file = tempfile::NamedTempFile::with_suffix(".gguf").unwrap();
        let metadata = metadata(family, &config);
        let metadata: Vec<(&str, &Value)> = metadata
            .iter()
            .map(|(key, value)| (key.as_str(), value))
            .collect();
        let tensors: Vec<(&str, &QTensor)> = tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
            .collect();
        gguf_file::write(&mut file.reopen().unwrap(), &metadata, &tensors).unwrap();

        let checkpoint = Checkpoint::open(file.path()).unwrap();
        let backend = Backend::Kernels { widen: false };
        let decoder = load(&checkpoint, backend.clone()).unwrap();
        let mut memory = Memory::new(&decoder.needs(), 16, 1, &backend).unwrap();
        let prompt = &prompts()[0];
        let hidden = decoder
            .hidden(&[span(prompt, 0, 64, 0)], Some(&mut memory))
            .unwrap();
        let logits = decoder.logits(&hidden).unwrap();
        let expected: HashMap<String, Tensor> =
            candle_core::safetensors::load(folder.join("expected.safetensors"), &Device::Cpu)
                .unwrap();
        let off = (logits - &expected["logits.0"])
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap();
        let off = off.to_scalar::<f32>().unwrap();
        assert!(off < 1e-4, "{family}: off by {off}");
    }
}
