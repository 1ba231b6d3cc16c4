//! Adapters as PEFT stores them.

use std::{collections::BTreeMap, fs, path::Path};

use candle_core::{DType, Device, Tensor};
use serde::Deserialize;
use serde_json::json;

use super::Adapter;
use crate::{
    LmError,
    weights::{header, json as read_json},
};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
const PREFIX: &str = "base_model.model.";

#[derive(Deserialize)]
struct Config {
    peft_type: String,
    r: usize,
    lora_alpha: f64,
    #[serde(default)]
    use_dora: bool,
    #[serde(default)]
    use_rslora: bool,
    #[serde(default)]
    rank_pattern: BTreeMap<String, usize>,
    #[serde(default)]
    alpha_pattern: BTreeMap<String, f64>,
    #[serde(default)]
    fan_in_fan_out: bool,
}

/// The highest rank that is taken.
const HIGHEST_RANK: usize = 1024;

pub(super) fn load(folder: &Path) -> Result<Adapter, LmError> {
    let refused = |message: String| LmError::Adapter {
        path: folder.display().to_string(),
        message,
    };
    let config: Config = read_json(&folder.join(CONFIG))?;
    if config.peft_type != "LORA" {
        return Err(refused(format!(
            "its type is `{}`; known is `LORA`",
            config.peft_type
        )));
    }
    let unknown = [
        ("use_dora", config.use_dora),
        ("use_rslora", config.use_rslora),
        ("fan_in_fan_out", config.fan_in_fan_out),
        ("rank_pattern", !config.rank_pattern.is_empty()),
        ("alpha_pattern", !config.alpha_pattern.is_empty()),
    ];
    if let Some((name, _)) = unknown.into_iter().find(|(_, set)| *set) {
        return Err(refused(format!("its `{name}` is not known here")));
    }
    if config.r == 0 || config.r > HIGHEST_RANK {
        return Err(refused(format!(
            "its rank is {}; it must be 1 to {HIGHEST_RANK}",
            config.r
        )));
    }
    let path = folder.join(WEIGHTS);
    // Checks the lengths before anything is read.
    header(&path)?;
    let tensors = candle_core::safetensors::load(&path, &Device::Cpu)?;
    let mut halves: BTreeMap<String, [Option<Tensor>; 2]> = BTreeMap::new();
    for (key, tensor) in tensors {
        let name = key.strip_prefix(PREFIX).unwrap_or(&key);
        let (module, half) = if let Some(module) = name.strip_suffix(".lora_A.weight") {
            (module, 0)
        } else if let Some(module) = name.strip_suffix(".lora_B.weight") {
            (module, 1)
        } else {
            return Err(refused(format!(
                "it has a tensor `{key}`, which is no part of a LoRA"
            )));
        };
        let tensor = tensor.to_dtype(DType::F32)?;
        if tensor.rank() != 2 {
            return Err(refused(format!(
                "`{key}` has the shape {:?}",
                tensor.dims()
            )));
        }
        if tensor
            .flatten_all()?
            .to_vec1::<f32>()?
            .iter()
            .any(|x| !x.is_finite())
        {
            return Err(refused(format!(
                "`{key}` holds numbers that are not finite"
            )));
        }
        halves.entry(module.to_owned()).or_default()[half] = Some(tensor);
    }
    let modules = halves
        .into_iter()
        .map(|(module, halves)| match halves {
            [Some(a), Some(b)] => Ok((module, (a, b))),
            _ => Err(refused(format!(
                "`{module}` has only one of its two matrices"
            ))),
        })
        .collect::<Result<BTreeMap<_, _>, LmError>>()?;
    Adapter::new(modules, config.r, config.lora_alpha)
}

pub(super) fn save(adapter: &Adapter, folder: &Path, base_model: &str) -> Result<(), LmError> {
    let io = |error| LmError::Io {
        path: folder.display().to_string(),
        error,
    };
    fs::create_dir_all(folder).map_err(io)?;
    let mut targets: Vec<&str> = adapter
        .modules()
        .filter_map(|name| name.rsplit('.').next())
        .collect();
    targets.sort_unstable();
    targets.dedup();
    let config = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": targets,
        "fan_in_fan_out": false,
        "inference_mode": true,
    });
    let mut tensors = std::collections::HashMap::new();
    for (name, lora) in &adapter.modules {
        for (half, tensor) in [("lora_A", &lora.a), ("lora_B", &lora.b)] {
            let tensor = tensor
                .to_device(&Device::Cpu)?
                .to_dtype(DType::F32)?
                .contiguous()?;
            tensors.insert(format!("{PREFIX}{name}.{half}.weight"), tensor);
        }
    }
    candle_core::safetensors::save(&tensors, folder.join(WEIGHTS))?;
    fs::write(folder.join(CONFIG), format!("{config:#}\n")).map_err(io)
}
