//! Every trainable tensor of every architecture has the gradient that finite differences give.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use candle_core::{DType, Device, Tensor, Var};

use super::{Learner, Normal, Supervised};
use crate::{Adapter, Compute, Engine, EngineConfig, Model, Request, Work};

const FAMILIES: [&str; 6] = ["llama", "llama3", "qwen2", "qwen3", "gemma3", "qwen3_5"];
const TARGETS: [&str; 7] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
];

fn fixture(family: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(family)
}

fn sequences() -> Vec<Supervised> {
    let tokens =
        |count: u32, step: u32| (0..count).map(|i| 3 + (i * step) % 90).collect::<Vec<_>>();
    vec![
        Supervised {
            tokens: tokens(30, 17),
            chosen: (10..30).collect(),
        },
        Supervised {
            tokens: tokens(9, 7),
            chosen: vec![1, 2, 8],
        },
    ]
}

fn loss(learner: &Learner, adapter: Option<&Arc<Adapter>>) -> Tensor {
    let chosen = learner.log_probabilities(&sequences(), adapter).unwrap();
    chosen.mean_all().unwrap().neg().unwrap()
}

fn number(tensor: &Tensor) -> f64 {
    f64::from(
        tensor
            .to_dtype(DType::F32)
            .unwrap()
            .to_scalar::<f32>()
            .unwrap(),
    )
}

/// Moves each variable along a random direction and compares.
fn check(what: &str, variables: &BTreeMap<String, Var>, loss: impl Fn() -> Tensor) {
    const STEP: f64 = 2.5e-3;
    let gradients = loss().backward().unwrap();
    let mut random = Normal(5);
    for (name, variable) in variables {
        let gradient = gradients
            .get(variable)
            .unwrap_or_else(|| panic!("{what}: no gradient of {name}"));
        let length = number(&gradient.sqr().unwrap().sum_all().unwrap()).sqrt();
        assert!(length > 1e-7, "{what}: the gradient of {name} is 0");
        // Half along the gradient, so that the difference is well above rounding.
        let noise: Vec<f32> = (0..variable.elem_count())
            .map(|_| random.next() as f32)
            .collect();
        let noise = Tensor::from_vec(noise, variable.shape(), &Device::Cpu).unwrap();
        let noise_length = number(&noise.sqr().unwrap().sum_all().unwrap()).sqrt();
        let direction = ((gradient / length).unwrap() + (noise / noise_length).unwrap()).unwrap();
        let slope = number(&(gradient * &direction).unwrap().sum_all().unwrap());
        let old = variable.as_tensor().copy().unwrap();
        let at = |step: f64| {
            variable
                .set(&(&old + (&direction * step).unwrap()).unwrap())
                .unwrap();
            number(&loss())
        };
        let difference = |step: f64| (at(step) - at(-step)) / (2.0 * step);
        // Two steps together are free of the curvature's first term; the steeper, the shorter.
        let step = STEP / slope.max(1.0);
        let found = (4.0 * difference(step) - difference(2.0 * step)) / 3.0;
        variable.set(&old).unwrap();
        // What is left is the rounding of the loss.
        let off = (found - slope).abs();
        assert!(
            off < 0.02 * slope + 4e-4,
            "{what}: {name}: {found} for {slope}"
        );
    }
}

#[test]
fn every_weight_has_its_gradient() {
    for family in FAMILIES {
        let mut learner = Learner::load(&fixture(family), &Device::Cpu, DType::F32).unwrap();
        let variables = learner.variables().unwrap();
        assert!(variables.len() > 15, "{family}");
        check(family, &variables, || loss(&learner, None));
    }
}

#[test]
fn every_adapter_has_its_gradient_and_nothing_else_does() {
    for family in FAMILIES {
        let learner = Learner::load(&fixture(family), &Device::Cpu, DType::F32).unwrap();
        let (adapter, variables) = learner.adapter(&TARGETS, 3, 6.0, 1).unwrap();
        let adapter = Arc::new(adapter);
        let same = number(&loss(&learner, None)) - number(&loss(&learner, Some(&adapter)));
        assert!(
            same.abs() < 1e-7,
            "{family}: a new adapter changes something"
        );
        // Away from 0, where A has no gradient.
        let mut random = Normal(9);
        for (name, variable) in &variables {
            if name.ends_with("lora_B") {
                let noise: Vec<f32> = (0..variable.elem_count())
                    .map(|_| random.next() as f32 * 0.2)
                    .collect();
                variable
                    .set(&Tensor::from_vec(noise, variable.shape(), &Device::Cpu).unwrap())
                    .unwrap();
            }
        }
        check(family, &variables, || loss(&learner, Some(&adapter)));
        assert!(learner.adapter(&["no_proj"], 3, 6.0, 1).is_err());
    }
}

#[test]
fn chunks_do_not_change_the_result() {
    let rows = 24;
    let hidden = Tensor::randn(0f32, 1.0, (rows, 8), &Device::Cpu).unwrap();
    let table = Tensor::randn(0f32, 1.0, (50, 8), &Device::Cpu).unwrap();
    let targets: Vec<u32> = (0..rows as u32).collect();
    let of = |chunk| {
        let (hidden, table) = (
            Var::from_tensor(&hidden).unwrap(),
            Var::from_tensor(&table).unwrap(),
        );
        let values =
            super::chosen::log_probabilities(&hidden, &table, &targets, chunk, true).unwrap();
        let gradients = values.sum_all().unwrap().backward().unwrap();
        let flat = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        [
            flat(&values),
            flat(gradients.get(&hidden).unwrap()),
            flat(gradients.get(&table).unwrap()),
        ]
    };
    for (a, b) in of(5).iter().flatten().zip(of(100).iter().flatten()) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

#[test]
fn the_learner_and_the_engine_give_the_same_log_probabilities() {
    for family in FAMILIES {
        let folder = fixture(family);
        let learner = Learner::load(&folder, &Device::Cpu, DType::F32).unwrap();
        let sequence = &sequences()[0];
        let learned = learner
            .log_probabilities(std::slice::from_ref(sequence), None)
            .unwrap();
        let model = Model::load(&folder, &Compute::Kernels).unwrap();
        let engine = Engine::start(model, EngineConfig::default()).unwrap();
        let request = Request {
            prompt: sequence.tokens[..10].to_vec(),
            work: Work::Score(sequence.tokens[10..].to_vec()),
            adapter: None,
        };
        let scored = engine.score(request).unwrap().log_probabilities;
        for (a, b) in learned.to_vec1::<f32>().unwrap().iter().zip(scored) {
            assert!((a - b).abs() < 1e-4, "{family}: {a} {b}");
        }
    }
}
