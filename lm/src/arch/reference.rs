//! Every architecture against the reference implementation: `fixtures/make.py` says which.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use candle_core::{DType, Device, Tensor};

use super::load;
use crate::{
    Adapter, LmError,
    blocks::{Backend, Decoder, Memory, Span},
    kernels::attention::PAGE,
    weights::Checkpoint,
};

const FAMILIES: [&str; 6] = ["llama", "llama3", "qwen2", "qwen3", "gemma3", "qwen3_5"];

pub(super) fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn candle() -> Backend {
    Backend::Candle {
        device: Device::Cpu,
        dtype: DType::F32,
        frozen: false,
    }
}

pub(super) fn prompts() -> Vec<Vec<u32>> {
    let text = std::fs::read_to_string(fixtures().join("prompts.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

struct Case {
    family: &'static str,
    decoder: Decoder,
    expected: HashMap<String, Tensor>,
}

fn cases(backend: &Backend) -> impl Iterator<Item = Case> {
    let backend = backend.clone();
    FAMILIES.into_iter().map(move |family| {
        let folder = fixtures().join(family);
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let expected = folder.join("expected.safetensors");
        Case {
            family,
            decoder: load(&checkpoint, backend.clone()).unwrap(),
            expected: candle_core::safetensors::load(expected, &Device::Cpu).unwrap(),
        }
    })
}

impl Case {
    fn memory(&self) -> Memory {
        Memory::new(&self.decoder.needs(), 64, 8, &self.decoder.backend).unwrap()
    }

    fn logits(&self, spans: &[Span], memory: Option<&mut Memory>) -> Result<Tensor, LmError> {
        self.decoder.logits(&self.decoder.hidden(spans, memory)?)
    }

    /// The largest difference from the reference's logits from position `from` on.
    fn check(&self, found: &Tensor, name: &str, from: usize, what: &str) {
        let rows = found.dim(0).unwrap();
        let expected = self.expected[name].narrow(0, from, rows).unwrap();
        let off = (found - expected)
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap();
        let off = off.to_scalar::<f32>().unwrap();
        assert!(off < 1e-4, "{} {name} {what}: off by {off}", self.family);
    }
}

/// A part of a prompt, whose sequence has the pages from `16 * slot` on.
pub(super) fn span(prompt: &[u32], start: usize, end: usize, slot: usize) -> Span {
    let first = u32::try_from(16 * slot).unwrap();
    let pages = u32::try_from(prompt.len().div_ceil(PAGE)).unwrap();
    Span {
        tokens: prompt[start..end].to_vec(),
        start,
        table: (first..first + pages).rev().collect(),
        slot,
        adapter: None,
        wanted: (0..end - start).collect(),
    }
}

#[test]
fn a_batch_without_memory_has_the_reference_logits() {
    let prompts = prompts();
    for case in cases(&candle()) {
        let spans: Vec<Span> = prompts
            .iter()
            .enumerate()
            .map(|(i, p)| span(p, 0, p.len(), i))
            .collect();
        let logits = case.logits(&spans, None).unwrap();
        let mut row = 0;
        for (index, prompt) in prompts.iter().enumerate() {
            let own = logits.narrow(0, row, prompt.len()).unwrap();
            case.check(&own, &format!("logits.{index}"), 0, "together");
            row += prompt.len();
        }
    }
}

#[test]
fn batches_of_unequal_lengths_in_pieces_have_the_reference_logits() {
    let prompts = prompts();
    for backend in [Backend::Kernels { widen: false }, candle()] {
        for case in cases(&backend) {
            let mut memory = case.memory();
            // Prompts in pieces, then token by token; every step holds all that are not done.
            let cuts = [[0, 40, 41, 42, 64], [0, 2, 3, 4, 5], [0, 17, 33, 34, 37]];
            for step in 0..4 {
                let spans: Vec<Span> = prompts
                    .iter()
                    .enumerate()
                    .map(|(i, p)| span(p, cuts[i][step], cuts[i][step + 1], i))
                    .collect();
                let logits = case.logits(&spans, Some(&mut memory)).unwrap();
                let mut row = 0;
                for (index, span) in spans.iter().enumerate() {
                    let own = logits.narrow(0, row, span.tokens.len()).unwrap();
                    let what = format!("{backend:?} step {step}");
                    case.check(&own, &format!("logits.{index}"), span.start, &what);
                    row += span.tokens.len();
                }
            }
        }
    }
}

#[test]
fn an_adapter_of_peft_has_the_reference_logits_beside_rows_without() {
    let prompts = prompts();
    for backend in [Backend::Kernels { widen: false }, candle()] {
        for case in cases(&backend) {
            let folder = fixtures().join(case.family).join("adapter");
            let adapter = Adapter::load(&folder).unwrap();
            adapter.check(&case.decoder, "adapter").unwrap();
            // What is written is what was read.
            let copy = tempfile::tempdir().unwrap();
            adapter.save(copy.path(), "tiny").unwrap();
            assert_eq!(Adapter::load(copy.path()).unwrap().hash(), adapter.hash());

            let mut adapted = span(&prompts[0], 0, 64, 0);
            adapted.adapter = Some(Arc::new(adapter));
            let plain = span(&prompts[2], 0, 37, 1);
            let mut memory = case.memory();
            let logits = case.logits(&[adapted, plain], Some(&mut memory)).unwrap();
            case.check(
                &logits.narrow(0, 0, 64).unwrap(),
                "adapted.logits.0",
                0,
                "adapted",
            );
            case.check(&logits.narrow(0, 64, 37).unwrap(), "logits.2", 0, "plain");
        }
    }
}

/// The same weights in two files, in 32 and in 16 bits.
#[test]
fn shards_are_one_model_and_halves_are_near_it() {
    let whole = fixtures().join("qwen3");
    let tensors =
        candle_core::safetensors::load(whole.join("model.safetensors"), &Device::Cpu).unwrap();
    for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::F16, 0.1), (DType::BF16, 0.8)] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(whole.join("config.json"), folder.path().join("config.json")).unwrap();
        let mut shards = [HashMap::new(), HashMap::new()];
        let mut index = serde_json::Map::new();
        for (number, (name, tensor)) in tensors.iter().enumerate() {
            let file = format!("model-{}.safetensors", number % 2);
            index.insert(name.clone(), file.into());
            shards[number % 2].insert(name.clone(), tensor.to_dtype(dtype).unwrap());
        }
        for (number, shard) in shards.iter().enumerate() {
            let file = folder.path().join(format!("model-{number}.safetensors"));
            candle_core::safetensors::save(shard, file).unwrap();
        }
        let index = serde_json::json!({ "weight_map": index }).to_string();
        std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
        let expected = whole.join("expected.safetensors");
        for backend in [
            Backend::Kernels { widen: false },
            Backend::Kernels { widen: true },
        ] {
            let case = Case {
                family: "qwen3",
                decoder: load(&Checkpoint::open(folder.path()).unwrap(), backend).unwrap(),
                expected: candle_core::safetensors::load(&expected, &Device::Cpu).unwrap(),
            };
            let prompt = &prompts()[0];
            let mut memory = case.memory();
            let found = case
                .logits(&[span(prompt, 0, 64, 0)], Some(&mut memory))
                .unwrap();
            let off = (found - &case.expected["logits.0"]).unwrap().abs().unwrap();
            let off = off.max_all().unwrap().to_scalar::<f32>().unwrap();
            assert!(off < tolerance, "{dtype:?}: off by {off}");
        }
    }
}

#[test]
fn an_adapter_of_another_model_is_refused() {
    let mut cases = cases(&Backend::Kernels { widen: false });
    let llama = cases.next().unwrap();
    let gemma = Adapter::load(&fixtures().join("gemma3/adapter")).unwrap();
    let error = gemma.check(&llama.decoder, "it").unwrap_err();
    assert!(matches!(error, LmError::Adapter { .. }), "{error}");
}
