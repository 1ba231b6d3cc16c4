//! A model with what was trained as a model of its own: safetensors, configuration, tokenizer.
//!
//! Weights are written in 32 bits: a small change would be rounded away in fewer. The model is the
//! same up to the order of sums; where it matters, serve the adapter beside the weights.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::Path,
};

use candle_core::{DType, Device, Tensor};
use serde_json::{Value, json};

use crate::{
    Adapter, LmError, arch,
    blocks::{Backend, Norm},
    text::Tokenizer,
    weights::Checkpoint,
};

/// What was trained.
#[derive(Clone, Copy, Debug)]
pub enum Trainable<'a> {
    /// An adapter.
    Adapter(&'a Adapter),
    /// Weights by name; all others stay.
    Weights(&'a HashMap<String, Tensor>),
}

/// What beside the weights makes a model, where they are safetensors.
const BESIDE: [&str; 6] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
    "added_tokens.json",
];

/// Writes the model `base` with what was trained into a folder.
///
/// # Errors
/// When a file can't be read or written, what was trained does not fit, or the model's form has no
/// words in the configuration of safetensors.
pub fn merge(base: &Path, trained: Trainable<'_>, folder: &Path) -> Result<(), LmError> {
    let io = |error| LmError::Io {
        path: folder.display().to_string(),
        error,
    };
    let checkpoint = Checkpoint::open(base)?;
    // Only GGUF files are in these forms; what they mean is undone when they are read.
    let forms = ["rope_factors", "value_heads_dealt"];
    if let Some(form) = forms
        .iter()
        .find(|form| checkpoint.config().get(**form).is_some())
    {
        return Err(LmError::Config(format!(
            "this GGUF file's `{form}` has no form in safetensors; merge into the model that the \
             file was made of"
        )));
    }
    fs::create_dir_all(folder).map_err(io)?;
    let tensors = tensors(&checkpoint, trained)?;
    candle_core::safetensors::save(&tensors, folder.join("model.safetensors"))?;
    let mut config = checkpoint.config().clone();
    config["torch_dtype"] = json!("float32");
    write(&folder.join("config.json"), &config)?;
    match checkpoint.vocabulary() {
        None => {
            for name in BESIDE {
                let from = checkpoint.path().join(name);
                if from.exists() {
                    fs::copy(&from, folder.join(name)).map_err(io)?;
                }
            }
        }
        Some(vocabulary) => {
            let (tokenizer, _) = Tokenizer::open(&checkpoint)?;
            let template = vocabulary.template.as_deref();
            let (beginning, end) = (vocabulary.beginning, vocabulary.end);
            tokenizer.save(folder, template, beginning, end)?;
            let ends: Vec<u32> = tokenizer.ends.iter().copied().collect();
            let generation = json!({"eos_token_id": ends});
            write(&folder.join("generation_config.json"), &generation)?;
        }
    }
    Ok(())
}

fn write(path: &Path, value: &Value) -> Result<(), LmError> {
    fs::write(path, format!("{value:#}\n")).map_err(|error| LmError::Io {
        path: path.display().to_string(),
        error,
    })
}

/// All tensors as files hold them.
fn tensors(
    checkpoint: &Checkpoint,
    trained: Trainable<'_>,
) -> Result<HashMap<String, Tensor>, LmError> {
    let backend = Backend::Candle {
        device: Device::Cpu,
        dtype: DType::F32,
        frozen: false,
    };
    let mut decoder = arch::load(checkpoint, backend)?;
    let less_one: BTreeSet<String> = decoder
        .norms()
        .filter(|norm| norm.less_one)
        .map(Norm::weight_name)
        .collect();
    let mut all: HashMap<String, Tensor> = HashMap::new();
    decoder.trainable(&mut |name, tensor| {
        all.insert(name.to_owned(), tensor.clone());
    });
    match trained {
        Trainable::Weights(weights) => {
            for (name, value) in weights {
                let place = all
                    .get_mut(name)
                    .filter(|place| place.shape() == value.shape())
                    .ok_or_else(|| LmError::Missing(name.clone()))?;
                *place = value.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
            }
        }
        Trainable::Adapter(adapter) => {
            adapter.check(&decoder, "to merge")?;
            for module in adapter.modules() {
                let name = format!("{module}.weight");
                let (Some(lora), Some(place)) = (adapter.module(module), all.get_mut(&name)) else {
                    return Err(LmError::Missing(name));
                };
                let change = (lora.b.matmul(&lora.a)? * f64::from(lora.scale))?;
                *place = (&*place + change)?;
            }
        }
    }
    for (name, tensor) in &mut all {
        if less_one.contains(name) {
            *tensor = (&*tensor - 1.0)?;
        } else if name.ends_with("conv1d.weight") {
            *tensor = tensor.unsqueeze(1)?;
        }
        *tensor = tensor.contiguous()?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{Learner, Lora, Supervised, Trained};

    fn fixture(family: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("fixtures")
            .join(family)
    }

    fn said(learner: &Learner) -> Vec<f32> {
        let asked = Supervised {
            tokens: (0..30).map(|i| 3 + (i * 17) % 90).collect(),
            chosen: (1..30).collect(),
        };
        learner.log_probabilities(&[asked]).unwrap()
    }

    #[test]
    fn a_merged_model_says_what_the_model_with_its_adapter_says() {
        for family in ["llama", "llama3", "qwen2", "qwen3", "gemma3", "qwen3_5"] {
            let path = fixture(family);
            let load = |path: &Path, trained| {
                Learner::load(path, &Device::Cpu, DType::F32, trained).unwrap()
            };
            let lora = Lora {
                rank: 2,
                alpha: 4.0,
                targets: vec!["up_proj".to_owned(), "q_proj".to_owned()],
                seed: 1,
            };
            let trained = load(&path, Trained::Adapter(lora));
            for (name, variable) in trained.variables() {
                if name.ends_with("lora_B") {
                    let noise = Tensor::randn(0f32, 0.3, variable.shape(), &Device::Cpu).unwrap();
                    variable.set(&noise).unwrap();
                }
            }
            let folder = tempfile::tempdir().unwrap();
            let adapter = trained.adapter().unwrap().unwrap();
            merge(&path, Trainable::Adapter(&adapter), folder.path()).unwrap();
            let merged = load(folder.path(), Trained::Weights);
            let plain = said(&load(&path, Trained::Weights));
            let (expected, found) = (said(&trained), said(&merged));
            let far = |a: &[f32], b: &[f32]| {
                let off = a.iter().zip(b).map(|(a, b)| (a - b).abs());
                off.fold(0.0, f32::max)
            };
            assert!(far(&expected, &found) < 1e-4, "{family}");
            assert!(far(&plain, &found) > 1e-2, "{family}");

            // All weights, as they were read: the same model again.
            let weights = merged.variables().iter();
            let weights: HashMap<String, Tensor> = weights
                .map(|(name, variable)| (name.clone(), variable.as_tensor().detach()))
                .collect();
            let again = tempfile::tempdir().unwrap();
            merge(&path, Trainable::Weights(&weights), again.path()).unwrap();
            assert!(
                far(&found, &said(&load(again.path(), Trained::Weights))) < 1e-6,
                "{family}"
            );
        }
    }
}
