//! Every trainable tensor of every architecture has the gradient that finite differences give.

use std::path::PathBuf;

use candle_core::{DType, Device, Tensor, Var};

use super::{Learner, Lora, Pass, Supervised, Trained};
use crate::{Compute, Engine, EngineConfig, LmError, Model, Request, Work, random::Uniform};

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
const PLAIN: Pass = Pass {
    recompute: false,
    dropout: None,
};

fn fixture(family: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(family)
}

fn lora(targets: &[&str]) -> Trained {
    Trained::Adapter(Lora {
        rank: 3,
        alpha: 6.0,
        targets: targets.iter().map(|target| (*target).to_owned()).collect(),
        seed: 1,
    })
}

fn learner(family: &str, trained: Trained) -> Learner {
    Learner::load(&fixture(family), &Device::Cpu, DType::F32, trained).unwrap()
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

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    flat.into_iter().map(f64::from).collect()
}

fn set(variable: &Var, numbers: &[f64]) {
    let numbers: Vec<f32> = numbers.iter().map(|x| *x as f32).collect();
    let tensor = Tensor::from_vec(numbers, variable.shape(), &Device::Cpu).unwrap();
    variable.set(&tensor).unwrap();
}

fn length(numbers: &[f64]) -> f64 {
    numbers.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// The mean of minus the log-probabilities.
fn loss(learner: &Learner) -> f64 {
    let values = learner.log_probabilities(&sequences()).unwrap();
    -values.iter().map(|x| f64::from(*x)).sum::<f64>() / values.len() as f64
}

/// Moves each variable along a random direction and compares.
fn check(family: &str, learner: &Learner) {
    const STEP: f64 = 2.5e-3;
    let weight = 1.0 / 23.0;
    let found = learner.gradients(&sequences(), weight, PLAIN).unwrap();
    let mut random = Uniform::new(5);
    for (name, variable) in learner.variables() {
        let gradient = numbers(&found.by_name[name]);
        let steepness = length(&gradient);
        assert!(steepness > 1e-7, "{family}: the gradient of {name} is 0");
        // Half along the gradient, so that the difference is well above rounding.
        let noise: Vec<f64> = gradient.iter().map(|_| random.next() - 0.5).collect();
        let noise_length = length(&noise);
        let direction: Vec<f64> = gradient
            .iter()
            .zip(&noise)
            .map(|(g, n)| g / steepness + n / noise_length)
            .collect();
        let slope: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
        let old = numbers(variable);
        let at = |step: f64| {
            let moved: Vec<f64> = old
                .iter()
                .zip(&direction)
                .map(|(x, d)| x + d * step)
                .collect();
            set(variable, &moved);
            loss(learner)
        };
        let difference = |step: f64| (at(step) - at(-step)) / (2.0 * step);
        // Two steps together are free of the curvature's first term; the steeper, the shorter.
        let step = STEP / slope.max(1.0);
        let found = (4.0 * difference(step) - difference(2.0 * step)) / 3.0;
        set(variable, &old);
        // What is left is the rounding of the loss.
        let off = (found - slope).abs();
        assert!(
            off < 0.02 * slope + 4e-4,
            "{family}: {name}: {found} for {slope}"
        );
    }
}

/// Away from 0, where the first matrices have no gradient.
fn scatter(learner: &Learner) {
    let mut random = Uniform::new(9);
    for (name, variable) in learner.variables() {
        if name.ends_with("lora_B") {
            let noise: Vec<f64> = (0..variable.elem_count())
                .map(|_| 0.6 * (random.next() - 0.5))
                .collect();
            set(variable, &noise);
        }
    }
}

#[test]
fn every_weight_has_its_gradient() {
    for family in FAMILIES {
        let learner = learner(family, Trained::Weights);
        assert!(learner.variables().len() > 15, "{family}");
        check(family, &learner);
    }
}

#[test]
fn every_adapter_has_its_gradient_and_nothing_else_does() {
    for family in FAMILIES {
        let plain = loss(&learner(family, Trained::Weights));
        let learner = learner(family, lora(&TARGETS));
        let off = (loss(&learner) - plain).abs();
        assert!(
            off < 1e-5,
            "{family}: a new adapter changes the loss by {off}"
        );
        scatter(&learner);
        assert!((loss(&learner) - plain).abs() > 1e-3, "{family}");
        check(family, &learner);
    }
}

/// The small operations of candle and ours come to the same.
#[test]
fn frozen_and_free_weights_give_an_adapter_the_same_gradients() {
    for family in FAMILIES {
        let packed = learner(family, lora(&["v_proj", "up_proj"]));
        let mut plain = learner(family, lora(&["v_proj", "up_proj"]));
        plain.decoder = learner(family, Trained::Weights).decoder;
        scatter(&packed);
        scatter(&plain);
        let of = |learner: &Learner| learner.gradients(&sequences(), 0.1, PLAIN).unwrap();
        let (packed, plain) = (of(&packed), of(&plain));
        for (name, gradient) in &plain.by_name {
            let (expected, found) = (numbers(gradient), numbers(&packed.by_name[name]));
            let off: Vec<f64> = expected.iter().zip(&found).map(|(a, b)| a - b).collect();
            assert!(length(&off) < 1e-4 * length(&expected), "{family}: {name}");
        }
    }
}

#[test]
fn computing_again_gives_the_same_bits() {
    for family in FAMILIES {
        for trained in [lora(&TARGETS), Trained::Weights] {
            let learner = learner(family, trained);
            scatter(&learner);
            let of = |recompute, dropout| {
                let how = Pass { recompute, dropout };
                learner.gradients(&sequences(), 0.1, how).unwrap()
            };
            for dropout in [None, Some((0.2, 7))] {
                let (kept, again) = (of(false, dropout), of(true, dropout));
                assert_eq!(kept.log_probabilities, again.log_probabilities, "{family}");
                for (name, gradient) in &kept.by_name {
                    let (a, b) = (numbers(gradient), numbers(&again.by_name[name]));
                    let off: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
                    assert!(length(&off) <= 1e-6 * length(&a), "{family}: {name}");
                }
            }
        }
    }
}

#[test]
fn dropout_changes_what_an_adapter_sees_and_its_seed_says_how() {
    let learner = learner("llama", lora(&TARGETS));
    scatter(&learner);
    let of = |dropout| {
        let how = Pass {
            recompute: false,
            dropout,
        };
        let found = learner.gradients(&sequences(), 1.0, how).unwrap();
        found.log_probabilities
    };
    let (none, first, second) = (of(None), of(Some((0.5, 1))), of(Some((0.5, 2))));
    assert_ne!(none, first);
    assert_ne!(first, second);
    assert_eq!(first, of(Some((0.5, 1))));
}

#[test]
fn what_can_not_be_trained_is_refused() {
    let unknown = Learner::load(
        &fixture("llama"),
        &Device::Cpu,
        DType::F32,
        lora(&["q_proj", "no_proj"]),
    );
    assert!(matches!(unknown, Err(LmError::Target { .. })));
    let learner = learner("llama", lora(&["q_proj"]));
    let of = |chosen: Vec<usize>| {
        let tokens = vec![3, 4, 5];
        learner.gradients(&[Supervised { tokens, chosen }], 1.0, PLAIN)
    };
    assert!(matches!(of(vec![]), Err(LmError::Empty)));
    assert!(matches!(of(vec![0]), Err(LmError::Setting { .. })));
    assert!(matches!(of(vec![3]), Err(LmError::Setting { .. })));
    assert!(of(vec![2]).is_ok());
}

#[test]
fn the_learner_and_the_engine_give_the_same_log_probabilities() {
    for family in FAMILIES {
        let sequence = &sequences()[0];
        let learned = learner(family, lora(&TARGETS))
            .log_probabilities(std::slice::from_ref(sequence))
            .unwrap();
        let model = Model::load(&fixture(family), &Compute::Kernels).unwrap();
        let engine = Engine::start(model, EngineConfig::default()).unwrap();
        let request = Request {
            prompt: sequence.tokens[..10].to_vec(),
            work: Work::Score(sequence.tokens[10..].to_vec()),
            adapter: None,
        };
        let scored = engine.score(request).unwrap().log_probabilities;
        for (a, b) in learned.iter().zip(scored) {
            assert!((a - b).abs() < 1e-4, "{family}: {a} {b}");
        }
    }
}
