//! The engine on small real models against what others compute from the same files:
//! `lm/fixtures/make_real.py` says how.

use std::path::PathBuf;

use serde::Deserialize;
use whale_lm::{Compute, Engine, EngineConfig, Generate, Model, Request, Sampling, Work};

use crate::support;

#[derive(Deserialize)]
struct Made {
    prompts: Vec<Case>,
    corpus: Vec<Text>,
}

#[derive(Deserialize)]
struct Case {
    question: String,
    prompt: Vec<u32>,
    /// For each token, the two likeliest with their log-probabilities.
    transformers: Vec<[(u32, f32); 2]>,
    #[serde(rename = "llama.cpp")]
    llama_cpp: Vec<[(u32, f32); 2]>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    ids: Vec<u32>,
}

/// A model that the set-up fetched, and the fixture made with it.
#[derive(Clone, Copy)]
struct Real {
    model: &'static str,
    fixture: &'static str,
}

const SMOLLM2: Real = Real {
    model: "smollm2-135m",
    fixture: "smollm2",
};
const GEMMA3: Real = Real {
    model: "gemma3-270m",
    fixture: "gemma3_270m",
};

impl Real {
    fn made(self) -> Made {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../lm/fixtures");
        let path = format!("{folder}/{}.json", self.fixture);
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn path(self) -> PathBuf {
        support::cache().join(format!("models/{}.gguf", self.model))
    }

    fn engine(self, compute: &Compute) -> Engine {
        let model = Model::load(&self.path(), compute).unwrap();
        Engine::start(model, EngineConfig::default()).unwrap()
    }
}

/// The two likeliest tokens after each beginning of the reference's reply.
fn along(engine: &Engine, case: &Case, reply: &[[(u32, f32); 2]]) -> Vec<[(u32, f32); 2]> {
    let mut prompt = case.prompt.clone();
    let mut found = Vec::new();
    for step in reply {
        let generate = Generate {
            max_tokens: 1,
            sampling: Sampling {
                temperature: 0.0,
                ..Sampling::default()
            },
            top: 2,
            ..Generate::default()
        };
        let work = Work::Generate(generate);
        let request = Request {
            prompt: prompt.clone(),
            work,
            adapter: None,
        };
        let reply = engine.generate(request).unwrap();
        found.push(reply.tokens[0].top.clone().try_into().unwrap());
        prompt.push(step[0].0);
    }
    found
}

/// The likeliest token is the reference's wherever its two likeliest are further apart than `noise`;
/// the log-probability of the likeliest is off by at most `off`.
fn check(
    case: &Case,
    found: &[[(u32, f32); 2]],
    expected: &[[(u32, f32); 2]],
    noise: f32,
    off: f32,
) {
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let at = format!(
            "`{}` token {step}: {found:?} for {expected:?}",
            case.question
        );
        if expected[0].1 - expected[1].1 > noise {
            assert_eq!(found[0].0, expected[0].0, "{at}");
        }
        let same = found.iter().find(|(token, _)| *token == expected[0].0);
        if let Some((_, log_probability)) = same {
            assert!((log_probability - expected[0].1).abs() < off, "{at}");
        }
    }
}

/// In 32 bits, differences are those of the order of additions.
fn check_widened(real: Real) {
    let engine = real.engine(&Compute::Widened);
    for case in real.made().prompts {
        let found = along(&engine, &case, &case.transformers);
        check(&case, &found, &case.transformers, 1e-3, 1e-3);
    }
}

/// With weights as they are stored, both round rows to 8 bits, each at another moment.
fn check_stored(real: Real, noise: f32) {
    let engine = real.engine(&Compute::Kernels);
    let (mut clear, mut all) = (0, 0);
    for case in real.made().prompts {
        let found = along(&engine, &case, &case.llama_cpp);
        check(&case, &found, &case.llama_cpp, noise, noise);
        clear += case
            .llama_cpp
            .iter()
            .filter(|top| top[0].1 - top[1].1 > noise)
            .count();
        all += case.llama_cpp.len();
    }
    assert!(clear * 3 > all, "only {clear} of {all} tokens are clear");
}

fn check_texts(real: Real) {
    let model = Model::load(&real.path(), &Compute::Kernels).unwrap();
    for Text { text, ids } in real.made().corpus {
        assert_eq!(model.encode(&text).unwrap(), ids, "{text:?}");
        // Control tokens have no text.
        if !text.contains("<|") {
            assert_eq!(model.decode(&ids).unwrap(), text);
        }
    }
}

#[test]
fn widened_weights_give_the_reply_of_transformers() {
    check_widened(SMOLLM2);
}

#[test]
fn stored_weights_give_the_reply_of_llama_cpp_but_for_the_noise_of_rounding() {
    check_stored(SMOLLM2, 0.6);
}

#[test]
fn texts_have_the_reference_tokens_and_come_back() {
    check_texts(SMOLLM2);
}

#[test]
fn widened_weights_of_gemma_give_the_reply_of_transformers() {
    check_widened(GEMMA3);
}

#[test]
fn stored_weights_of_gemma_give_the_reply_of_llama_cpp_but_for_the_noise_of_rounding() {
    check_stored(GEMMA3, 0.6);
}

#[test]
fn texts_have_the_reference_tokens_of_gemma_and_come_back() {
    check_texts(GEMMA3);
}
