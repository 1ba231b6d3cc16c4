//! Files that are cut short, damaged, mismatched or oversized: an error each, never a panic.

use std::{fs, path::Path};

use proptest::prelude::*;

use crate::{Adapter, Compute, LmError, Model};

fn fixture(family: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(family)
}

/// A copy of the fixture that may be changed.
fn copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture("llama")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    folder
}

fn load(folder: &Path) -> Result<Model, LmError> {
    Model::load(folder, &Compute::Kernels)
}

/// The error after one setting of the configuration was changed.
fn with_config(key: &str, value: serde_json::Value) -> String {
    let folder = copy();
    let path = folder.path().join("config.json");
    let mut config: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config[key] = value;
    fs::write(&path, config.to_string()).unwrap();
    load(folder.path())
        .err()
        .map_or("loaded".to_owned(), |error| error.to_string())
}

#[test]
fn configurations_that_do_not_fit_are_refused() {
    let cases = [
        ("model_type", "gpt_neox".into()),
        ("hidden_size", 64.into()),
        ("hidden_size", (1u64 << 40).into()),
        ("num_hidden_layers", 3.into()),
        ("num_hidden_layers", 0.into()),
        ("num_key_value_heads", 3.into()),
        ("head_dim", 7.into()),
        ("vocab_size", 100.into()),
        (
            "rope_parameters",
            serde_json::json!({ "rope_type": "yarn", "factor": 2 }),
        ),
    ];
    let said: Vec<String> = cases
        .into_iter()
        .map(|(key, value)| with_config(key, value))
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    the model's architecture is `gpt_neox`; known are `llama`, `qwen2`, `qwen3`, `gemma3_text`, `qwen3_5_text`
    the tensor `model.layers.0.self_attn.q_proj.weight` has the shape [32, 32]; the configuration needs [32, 64]
    the model's configuration can't be used: `hidden_size` is 1099511627776; it must be 1 to 65536
    the model's files have no tensor `model.layers.2.self_attn.q_proj.weight`
    the model's configuration can't be used: `num_hidden_layers` is 0; it must be 1 to 512
    the model's configuration can't be used: 4 attention heads can't share 3 key heads
    the model's configuration can't be used: `head_dim` is 7, which is odd
    the tensor `model.embed_tokens.weight` has the shape [99, 32]; the configuration needs [100, 32]
    the model's configuration can't be used: `rope_type` is `yarn`; known are `default`, `linear` and `llama3`
    ");
}

#[test]
fn files_that_are_missing_or_lead_elsewhere_are_refused() {
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let folder = copy();
        fs::remove_file(folder.path().join(name)).unwrap();
        assert!(load(folder.path()).is_err(), "{name}");
    }
    let folder = copy();
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let index = r#"{"weight_map": {"a": "../../../etc/passwd"}}"#;
    fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    let error = load(folder.path()).err().unwrap().to_string();
    assert!(error.contains("its index names the file"), "{error}");
}

#[test]
fn adapters_that_are_damaged_are_refused() {
    let from = fixture("llama/adapter");
    let with = |change: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        for name in ["adapter_config.json", "adapter_model.safetensors"] {
            fs::copy(from.join(name), folder.path().join(name)).unwrap();
        }
        change(folder.path());
        Adapter::load(folder.path())
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(with(&|_| ()), None);
    let config = |change: &'static str, to: &'static str| {
        move |folder: &Path| {
            let path = folder.join("adapter_config.json");
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(change));
            fs::write(path, text.replace(change, to)).unwrap();
        }
    };
    for (change, to) in [
        ("\"LORA\"", "\"IA3\""),
        ("\"r\": 4", "\"r\": 0"),
        ("\"use_dora\": false", "\"use_dora\": true"),
        ("\"use_rslora\": false", "\"use_rslora\": true"),
    ] {
        assert!(with(&config(change, to)).is_some(), "{to}");
    }
    let cut = with(&|folder| {
        let path = folder.join("adapter_model.safetensors");
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 9]).unwrap();
    });
    assert!(cut.unwrap().contains("cut short"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn weights_that_are_cut_anywhere_are_refused(share in 0.0f64..1.0) {
        let folder = copy();
        let path = folder.path().join("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..(bytes.len() as f64 * share) as usize]).unwrap();
        prop_assert!(load(folder.path()).is_err());
    }

    /// A header that was changed is refused or, where a digit of an unused field changed, loaded.
    #[test]
    fn a_damaged_header_never_panics(at in 0usize..3000, byte: u8) {
        let folder = copy();
        let path = folder.path().join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] = byte;
        fs::write(&path, bytes).unwrap();
        let _ = load(folder.path());
    }

    #[test]
    fn noise_is_no_gguf(noise in prop::collection::vec(any::<u8>(), 0..400), magic: bool) {
        let file = tempfile::NamedTempFile::with_suffix(".gguf").unwrap();
        let head: &[u8] = if magic { b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0" } else { b"" };
        fs::write(file.path(), [head, &noise].concat()).unwrap();
        prop_assert!(load(file.path()).is_err());
    }
}
