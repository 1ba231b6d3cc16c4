//! The trainer as a whole, on small random models: against PyTorch with PEFT, over restarts, and
//! against what must not pass.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Tensor};
use serde::Deserialize;
use whale_lm::Supervised;

use crate::{
    Method, Settings, TrainError, Trainer,
    checkpoint::Checkpoints,
    data::{Sequence, sequences},
    trajectory::tests::trajectory,
};

fn model(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../lm/fixtures")
        .join(family)
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

fn small() -> Settings {
    Settings {
        rank: 4,
        alpha: 8.0,
        learning_rate: 5e-3,
        weight_decay: 0.01,
        parity: 1e9,
        ..Settings::default()
    }
}

fn trainer(family: &str, settings: &Settings) -> Trainer {
    Trainer::load(&model(family), &Device::Cpu, settings, 3).unwrap()
}

fn sequence(index: usize, tokens: Vec<u32>, chosen: Vec<usize>) -> Sequence {
    Sequence {
        item: index.to_string(),
        rollout: 0,
        supervised: Supervised { tokens, chosen },
        log_probabilities: Vec::new(),
    }
}

/// Some sequences, different in each step.
fn batch(step: u64) -> Vec<Sequence> {
    (0..5)
        .map(|index| {
            let length = 6 + (index * 5 + step as usize) % 11;
            let token = |i: usize| ((i * 7 + index * 13 + step as usize * 3) % 90) as u32;
            sequence(
                index,
                (0..length).map(token).collect(),
                (2..length).collect(),
            )
        })
        .collect()
}

#[derive(Deserialize)]
struct Run {
    steps: Vec<Reference>,
}

#[derive(Deserialize)]
struct Reference {
    batch: Vec<Row>,
    loss: f64,
    norm: f64,
}

#[derive(Deserialize)]
struct Row {
    tokens: Vec<u32>,
    chosen: Vec<usize>,
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// The run of PyTorch with PEFT, in passes of so many tokens.
fn follow(family: &str, token_budget: usize) {
    let folder = fixture(family);
    let run = std::fs::read(folder.join("run.json")).unwrap();
    let run: Run = serde_json::from_slice(&run).unwrap();
    let settings = Settings {
        token_budget,
        ..small()
    };
    let mut trainer = trainer(family, &settings);
    trainer.begin_from(&folder.join("before")).unwrap();
    for (number, step) in run.steps.into_iter().enumerate() {
        let rows = step.batch.into_iter().enumerate();
        let sequences = rows
            .map(|(i, row)| sequence(i, row.tokens, row.chosen))
            .collect();
        let update = trainer.update(sequences, number as u64, 0.0).unwrap();
        let off = (update.loss - step.loss).abs();
        assert!(
            off < 1e-4,
            "{family}, step {number}: {} for {}",
            update.loss,
            step.loss
        );
        let off = (update.gradient / step.norm - 1.0).abs();
        assert!(
            off < 1e-3,
            "{family}, step {number}: {} for {}",
            update.gradient,
            step.norm
        );
    }
    let after = folder.join("after/adapter_model.safetensors");
    let expected = candle_core::safetensors::load(after, &Device::Cpu).unwrap();
    let found = trainer.weights();
    for (name, tensor) in expected {
        let ours = name.strip_prefix("base_model.model.").unwrap();
        let ours = &found[ours.strip_suffix(".weight").unwrap()];
        for (a, b) in numbers(ours).iter().zip(numbers(&tensor)) {
            assert!((a - b).abs() < 1e-4, "{family}, {name}: {a} for {b}");
        }
    }
}

#[test]
fn twenty_steps_are_those_of_pytorch_with_peft() {
    for family in ["llama", "qwen3", "gemma3"] {
        follow(family, 4096);
    }
}

/// Packed or not, the loss is normalised by the supervised tokens of the whole minibatch.
#[test]
fn twenty_steps_in_passes_of_one_sequence_are_the_same() {
    follow("llama", 1);
}

/// Ten updates equal five, a new process, and five more.
fn check_resume(settings: &Settings) {
    let bits = |trainer: &Trainer| -> HashMap<String, Vec<u32>> {
        let weights = trainer.weights().into_iter();
        weights
            .map(|(name, tensor)| {
                let wide = tensor.to_dtype(DType::F32).unwrap();
                (name, numbers(&wide).into_iter().map(f32::to_bits).collect())
            })
            .collect()
    };
    let run = |trainer: &mut Trainer, from: u64, to: u64| {
        for step in from..to {
            trainer.update(batch(step), step, 0.0).unwrap();
        }
    };
    let mut whole = trainer("qwen3", settings);
    run(&mut whole, 0, 10);

    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path(), 2).unwrap();
    let mut first = trainer("qwen3", settings);
    run(&mut first, 0, 5);
    checkpoints
        .write(5, &first.steps(), |folder| first.save(folder))
        .unwrap();
    // What comes after the checkpoint is lost, and taken again.
    run(&mut first, 5, 7);
    drop(first);
    let found = checkpoints.newest::<u64>().unwrap().unwrap();
    let mut second = trainer("qwen3", settings);
    second.restore(&found.folder, found.state).unwrap();
    run(&mut second, 5, 10);
    assert_eq!(bits(&whole), bits(&second));
    assert_eq!(whole.steps(), second.steps());
}

#[test]
fn ten_steps_equal_five_a_stop_and_five_more_bit_for_bit() {
    let settings = Settings {
        dropout: 0.1,
        minibatch: 2,
        ..small()
    };
    check_resume(&settings);
    check_resume(&Settings {
        method: Method::Full,
        learning_rate: 1e-3,
        minibatch: 3,
        ..small()
    });
    check_resume(&Settings {
        method: Method::Full,
        precision: crate::Precision::Bf16,
        learning_rate: 1e-3,
        ..small()
    });
}

#[test]
fn it_learns_what_it_is_given_and_both_methods_do() {
    for method in [Method::Lora, Method::Full] {
        let settings = Settings {
            method,
            learning_rate: 1e-2,
            ..small()
        };
        let mut trainer = trainer("llama", &settings);
        let first = trainer.update(batch(0), 0, 0.0).unwrap().loss;
        for number in 1..60 {
            trainer.update(batch(0), number, 0.0).unwrap();
        }
        let last = trainer.update(batch(0), 60, 0.0).unwrap().loss;
        assert!(last < 0.1 * first, "{method:?}: {first} {last}");
    }
}

#[test]
fn nothing_kept_changes_nothing() {
    let mut trainer = trainer("llama", &small());
    let before = trainer.adapter().unwrap().unwrap();
    let update = trainer.update(Vec::new(), 0, 0.0).unwrap();
    assert_eq!(
        (update.steps, update.supervised, trainer.steps()),
        (0, 0, 0)
    );
    assert_eq!(update.loss, 0.0);
    assert_eq!(trainer.adapter().unwrap().unwrap().hash(), before.hash());
}

#[test]
fn a_mask_over_everything_or_nothing_is_an_error() {
    let mut trainer = trainer("llama", &small());
    let refused = |trainer: &mut Trainer, chosen: Vec<usize>| {
        let wrong = vec![sequence(0, vec![1, 2, 3], chosen)];
        matches!(
            trainer.update(wrong, 0, 0.0),
            Err(TrainError::Sequence { .. })
        )
    };
    assert!(refused(&mut trainer, vec![0, 1, 2]));
    assert!(refused(&mut trainer, vec![]));
    assert_eq!(trainer.steps(), 0);
}

/// Trajectories as the trainer's own model would have sampled them, and how far both are apart.
fn sampled(trainer: &Trainer, context: &[u32], shown: &[u32]) -> Vec<Sequence> {
    let reply = [5, 9, 11, 2];
    let tokens: Vec<u32> = context.iter().chain(&reply).copied().collect();
    let asked = Supervised {
        chosen: (context.len()..tokens.len()).collect(),
        tokens,
    };
    let log_probabilities = trainer.learner().log_probabilities(&[asked]).unwrap();
    let mut episode = trajectory("a", 1.0, &[(shown, &reply)]);
    episode.calls[0].log_probabilities = log_probabilities;
    sequences(&[&episode], trainer.bounds()).unwrap().0
}

#[test]
fn a_wrong_prefix_sets_off_the_alarm() {
    let settings = Settings {
        parity: 0.01,
        ..small()
    };
    let mut trainer = trainer("llama", &settings);
    let right = sampled(&trainer, &[1, 7, 8], &[1, 7, 8]);
    let parity = trainer.update(right, 0, 0.0).unwrap().parity.unwrap();
    assert!(parity.mean < 1e-5 && parity.tokens == 4, "{parity:?}");
    let wrong = sampled(&trainer, &[1, 7, 8], &[1, 8, 7]);
    let error = trainer.update(wrong, 1, 0.0).unwrap_err();
    assert!(
        matches!(error, TrainError::Parity { tokens: 4, .. }),
        "{error}"
    );
    assert_eq!(trainer.steps(), 1);
}

#[test]
fn a_checkpoint_of_another_form_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = trainer("llama", &small());
    first.save(folder.path()).unwrap();
    let narrow = Settings { rank: 2, ..small() };
    let error = trainer("llama", &narrow)
        .restore(folder.path(), 0)
        .unwrap_err();
    assert!(error.to_string().contains("has the shape [4,"), "{error}");
    let fewer = Settings {
        targets: vec!["q_proj".to_owned()],
        ..small()
    };
    let error = trainer("llama", &fewer)
        .restore(folder.path(), 0)
        .unwrap_err();
    assert!(
        error.to_string().contains("which is not trained here"),
        "{error}"
    );
    let error = trainer("llama", &small())
        .restore(folder.path(), 4)
        .unwrap_err();
    assert!(error.to_string().contains("it lacks"), "{error}");
}
