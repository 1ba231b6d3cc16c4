//! The engine on tiny random models of three kinds: plain, with windows, with recurrent states.

use std::{
    path::PathBuf,
    sync::mpsc,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::*;
use crate::Compute;

const FAMILIES: [&str; 3] = ["llama", "gemma3", "qwen3_5"];

fn fixture(family: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(family)
}

/// Bytes that hold so many pages.
fn memory(family: &str, pages: usize) -> usize {
    let (attentions, dim) = match family {
        "llama" => (2, 8),
        "gemma3" => (3, 16),
        _ => (1, 16),
    };
    pages * attentions * 2 * 2 * dim * PAGE * 4
}

fn config() -> EngineConfig {
    EngineConfig {
        threads: Some(2),
        step_tokens: 48,
        ..EngineConfig::default()
    }
}

fn engine(family: &str, config: EngineConfig) -> Engine {
    let model = Model::load(&fixture(family), &Compute::Kernels).unwrap();
    Engine::start(model, config).unwrap()
}

fn generate(prompt: &[u32], generate: Generate) -> Request {
    Request {
        prompt: prompt.to_vec(),
        work: Work::Generate(generate),
        adapter: None,
    }
}

fn plain(prompt: &[u32], max_tokens: usize, seed: u64) -> Request {
    generate(
        prompt,
        Generate {
            max_tokens,
            seed,
            ignore_end: true,
            ..Generate::default()
        },
    )
}

/// Submits all at once and waits for all.
fn together(engine: &Engine, requests: Vec<Request>) -> Vec<Event> {
    let (sender, receiver) = mpsc::channel();
    let count = requests.len();
    let tickets: Vec<Ticket> = requests
        .into_iter()
        .enumerate()
        .map(|(index, request)| {
            let sender = sender.clone();
            let sink = Box::new(move |event| {
                if !matches!(event, Event::Token { .. }) {
                    sender.send((index, event)).unwrap();
                }
            });
            engine.submit(request, sink).unwrap()
        })
        .collect();
    let mut events: Vec<(usize, Event)> = receiver.iter().take(count).collect();
    drop(tickets);
    events.sort_by_key(|(index, _)| *index);
    events.into_iter().map(|(_, event)| event).collect()
}

/// What must not depend on other requests: ids, bits of log-probabilities, text.
fn essence(event: &Event) -> (Vec<u32>, Vec<u32>, String) {
    match event {
        Event::Generated(generated) => (
            generated.ids(),
            generated
                .tokens
                .iter()
                .map(|token| token.log_probability.to_bits())
                .collect(),
            generated.text.clone(),
        ),
        Event::Scored(scored) => {
            let bits = scored.log_probabilities.iter().map(|p| p.to_bits());
            (Vec::new(), bits.collect(), String::new())
        }
        other => panic!("{other:?}"),
    }
}

/// All pages are free again once everything is done.
fn assert_empty(engine: &Engine) {
    let begin = Instant::now();
    loop {
        let stats = engine.stats();
        if (stats.running, stats.waiting, stats.used_pages) == (0, 0, 0) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{stats:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let head = prop_oneof![Just(0usize), Just(16), Just(33), Just(48)];
    let one = (head, 0..4u32, 1..30usize, 1..25usize, any::<u64>(), 0..6u8);
    prop::collection::vec(one, 1..9).prop_map(|all| {
        let request =
            |(head, which, tail, new, seed, kind): (usize, u32, usize, usize, u64, u8)| {
                let head = (0..head as u32).map(|i| 3 + (i * 7 + which % 2) % 90);
                let tail = (0..tail as u32).map(|i| 3 + (i * 11 + which * 5) % 90);
                let prompt: Vec<u32> = head.chain(tail).collect();
                let sampling = match kind {
                    0 => Sampling {
                        temperature: 0.0,
                        ..Sampling::default()
                    },
                    1 => Sampling {
                        top_k: Some(5),
                        repetition_penalty: Some(1.3),
                        ..Sampling::default()
                    },
                    2 => Sampling {
                        top_p: Some(0.8),
                        temperature: 0.7,
                        ..Sampling::default()
                    },
                    _ => Sampling::default(),
                };
                let work = if kind == 5 {
                    Work::Score((0..new as u32).map(|i| 3 + (i * 13 + which) % 90).collect())
                } else {
                    let max_tokens = new;
                    Work::Generate(Generate {
                        max_tokens,
                        sampling,
                        seed,
                        ..Generate::default()
                    })
                };
                let adapter = (which == 3).then(|| "a".to_owned());
                Request {
                    prompt,
                    work,
                    adapter,
                }
            };
        all.into_iter().map(request).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// One by one without sharing is what everything else must equal: together, with what earlier
    /// requests left in the cache, and in so little memory that sequences are put back.
    #[test]
    fn a_result_depends_on_its_request_alone(requests in requests(), family in 0..3usize) {
        let family = FAMILIES[family];
        let start = |config: EngineConfig| {
            let engine = engine(family, config);
            engine.load_adapter("a", &fixture(family).join("adapter")).unwrap();
            engine
        };
        let alone = start(EngineConfig { share_prefixes: false, ..config() });
        let expected: Vec<_> = requests
            .iter()
            .map(|request| essence(&together(&alone, vec![request.clone()])[0]))
            .collect();
        let shared = start(config());
        let tight = start(EngineConfig { memory: memory(family, 9), sequences: 4, ..config() });
        for engine in [&shared, &shared, &tight] {
            let found = together(engine, requests.clone());
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(&essence(found), expected, "{}", family);
            }
        }
        for engine in [&alone, &shared, &tight] {
            assert_empty(engine);
        }
    }
}

#[test]
fn equal_heads_are_computed_once() {
    for family in FAMILIES {
        let engine = engine(family, config());
        let head: Vec<u32> = (0..64).map(|i| 3 + i % 80).collect();
        let request = |seed: u64| {
            let mut prompt = head.clone();
            prompt.push(5);
            plain(&prompt, 4, seed)
        };
        together(&engine, (0..10).map(request).collect());
        let stats = engine.stats();
        // Recurrent layers keep states where prompts end, which is the same place here.
        assert_eq!(
            (stats.prompt_tokens, stats.cached_tokens),
            (65 + 9, 9 * 64),
            "{family}"
        );
        let Event::Generated(again) = &together(&engine, vec![request(3)])[0] else {
            panic!()
        };
        assert_eq!(again.cached_tokens, 64, "{family}");
    }
}

#[test]
fn sequences_are_put_back_when_memory_is_short() {
    let engine = engine(
        "llama",
        EngineConfig {
            memory: memory("llama", 9),
            sequences: 4,
            ..config()
        },
    );
    let requests: Vec<Request> = (0..8u32)
        .map(|i| plain(&[3 + i, 9, 4], 60, u64::from(i)))
        .collect();
    for event in together(&engine, requests) {
        assert_eq!(essence(&event).0.len(), 60);
    }
    assert!(engine.stats().put_back > 0, "{:?}", engine.stats());
    assert_empty(&engine);
}

#[test]
fn an_adapter_changes_replies_and_leaves_no_trace_in_the_cache() {
    let engine = engine("llama", config());
    let prompt: Vec<u32> = (0..40).map(|i| 3 + i % 80).collect();
    let ask = |adapter: Option<&str>| {
        let mut request = plain(&prompt, 12, 1);
        request.adapter = adapter.map(str::to_owned);
        essence(&together(&engine, vec![request])[0])
    };
    let before = ask(None);
    let missing = engine.generate(Request {
        adapter: Some("a".to_owned()),
        ..plain(&prompt, 1, 0)
    });
    assert!(matches!(missing, Err(LmError::NoAdapter(_))));
    engine.load_adapter("a", &fixture("llama/adapter")).unwrap();
    let with = ask(Some("a"));
    assert_ne!(with, before);
    assert_eq!(ask(None), before);
    // The same name with another adapter: nothing of the old one may be found.
    let lora = crate::Lora {
        rank: 2,
        alpha: 4.0,
        targets: vec!["q_proj".to_owned()],
        seed: 1,
    };
    let fresh = crate::Learner::load(
        &fixture("llama"),
        &candle_core::Device::Cpu,
        candle_core::DType::F32,
        crate::Trained::Adapter(lora),
    )
    .unwrap()
    .adapter()
    .unwrap()
    .unwrap();
    let error = engine.use_adapter("a", fresh, "fresh").unwrap_err();
    assert!(error.to_string().contains("changes nothing"), "{error}");
    assert_eq!(ask(Some("a")), with);
    engine.unload_adapter("a").unwrap();
    assert!(engine.unload_adapter("a").is_err());
    assert_eq!(ask(None), before);
}

#[test]
fn scores_are_the_log_probabilities_that_sampling_reports() {
    for family in FAMILIES {
        let engine = engine(family, config());
        let prompt = [7, 8, 9, 40, 41];
        let generated = engine.generate(plain(&prompt, 20, 3)).unwrap();
        let work = Work::Score(generated.ids());
        let request = Request {
            prompt: prompt.to_vec(),
            work,
            adapter: None,
        };
        let scored = engine.score(request).unwrap().log_probabilities;
        let sampled: Vec<f32> = generated
            .tokens
            .iter()
            .map(|token| token.log_probability)
            .collect();
        assert_eq!(scored, sampled, "{family}");
    }
}

#[test]
fn replies_end_at_stop_strings_and_ids() {
    let engine = engine("llama", config());
    let prompt = [7, 8, 9];
    let free = engine.generate(plain(&prompt, 40, 5)).unwrap();
    let stop: String = free.text.chars().skip(5).take(2).collect();
    let at = free.text.find(&stop).unwrap();
    let request = Generate {
        max_tokens: 40,
        seed: 5,
        stops: vec![stop],
        ignore_end: true,
        ..Generate::default()
    };
    let stopped = engine.generate(generate(&prompt, request)).unwrap();
    assert_eq!(
        (stopped.finish, stopped.text.as_str()),
        (FinishReason::Stop, &free.text[..at])
    );
    assert_eq!(stopped.ids(), free.ids()[..stopped.tokens.len()]);
    let id = free.ids()[4];
    let request = Generate {
        max_tokens: 40,
        seed: 5,
        stop_ids: vec![id],
        ignore_end: true,
        ..Generate::default()
    };
    let stopped = engine.generate(generate(&prompt, request)).unwrap();
    assert_eq!(stopped.ids().last(), Some(&id));
    assert!(stopped.tokens.len() <= 5);
    let length = engine.generate(plain(&prompt, 3, 5)).unwrap();
    assert_eq!(
        (length.finish, length.tokens.len()),
        (FinishReason::Length, 3)
    );
}

#[test]
fn constraints_hold_for_every_seed() {
    let engine = engine("llama", config());
    let check = |constraint: Constraint, fits: &dyn Fn(&str) -> bool| {
        for seed in 0..12 {
            let constraint = Some(constraint.clone());
            let request = Generate {
                max_tokens: 60,
                seed,
                constraint,
                ..Generate::default()
            };
            let reply = engine.generate(generate(&[7, 8, 9], request)).unwrap();
            assert!(
                reply.finish == FinishReason::Length || fits(&reply.text),
                "{reply:?}"
            );
        }
    };
    let choices = ["yes", "no (a|b)", "$5.00"].map(str::to_owned);
    check(Constraint::Choices(choices.to_vec()), &|text| {
        choices.iter().any(|c| c == text)
    });
    check(Constraint::Regex("[0-9]{1,3}-(a|b)".to_owned()), &|text| {
        text.split_once('-')
            .is_some_and(|(n, c)| n.parse::<u16>().is_ok() && ["a", "b"].contains(&c))
    });
    let schema = serde_json::json!({
        "type": "object",
        "properties": { "n": { "type": "integer", "minimum": 0, "maximum": 9 } },
        "required": ["n"],
        "additionalProperties": false,
    });
    check(Constraint::JsonSchema(schema), &|text| {
        serde_json::from_str::<serde_json::Value>(text).is_ok_and(|value| value["n"].is_u64())
    });
    for bad in [
        Constraint::Choices(Vec::new()),
        Constraint::Regex("(".to_owned()),
        Constraint::Regex("a".repeat(300_000)),
        Constraint::JsonSchema(serde_json::json!({ "type": "no such type" })),
        Constraint::JsonSchema(serde_json::json!({ "$ref": "https://example.com/x" })),
    ] {
        let request = Generate {
            max_tokens: 5,
            constraint: Some(bad.clone()),
            ..Generate::default()
        };
        let error = engine.generate(generate(&[7], request)).unwrap_err();
        assert!(matches!(error, LmError::Constraint(_)), "{bad:?}: {error}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_it_waits() {
    let engine = engine(
        "llama",
        EngineConfig {
            context: Some(32),
            ..config()
        },
    );
    let with = |change: &dyn Fn(&mut Generate)| {
        let mut request = Generate {
            max_tokens: 4,
            ..Generate::default()
        };
        change(&mut request);
        engine
            .generate(generate(&[5], request))
            .unwrap_err()
            .to_string()
    };
    let refusals = [
        engine.generate(plain(&[], 1, 0)).unwrap_err().to_string(),
        engine.generate(plain(&[99], 1, 0)).unwrap_err().to_string(),
        engine
            .generate(plain(&[5; 32], 1, 0))
            .unwrap_err()
            .to_string(),
        with(&|g| g.max_tokens = 0),
        with(&|g| g.sampling.temperature = f32::NAN),
        with(&|g| g.sampling.temperature = -1.0),
        with(&|g| g.sampling.top_p = Some(1.5)),
        with(&|g| g.sampling.repetition_penalty = Some(0.0)),
        with(&|g| g.stops = vec!["x".repeat(2000)]),
        with(&|g| g.top = 1000),
    ];
    insta::assert_snapshot!(refusals.join("\n"), @r"
    the prompt is empty
    there is no token 99; the vocabulary has 99
    the prompt has 32 tokens; the model's context has 32
    `max_tokens` is 0; it must be at least 1
    `temperature` is NaN; it must be between 0 and 100
    `temperature` is -1; it must be between 0 and 100
    `top_p` is 1.5; it must be between 0 and 1
    `repetition_penalty` is 0; it must be between 0.01 and 100
    `stop` is 1 texts; it must be at most 64 texts of at most 1024 bytes
    `top_logprobs` is 1000; it must be at most 64
    ");
    // The longest prompt leaves room for one token.
    let full = engine.generate(plain(&[5; 31], 9, 0)).unwrap();
    assert_eq!((full.tokens.len(), full.finish), (1, FinishReason::Length));
}

#[test]
fn a_dropped_ticket_frees_its_slots_at_once() {
    let engine = engine(
        "llama",
        EngineConfig {
            sequences: 2,
            ..config()
        },
    );
    let never = |_: Event| {};
    let long: Vec<Ticket> = (0..5)
        .map(|seed| {
            engine
                .submit(plain(&[5, 6], 200, seed), Box::new(never))
                .unwrap()
        })
        .collect();
    drop(long);
    assert_empty(&engine);
    let stats = engine.stats();
    assert_eq!(stats.finished + stats.cancelled, 5, "{stats:?}");
    assert_eq!(
        engine.generate(plain(&[5, 6], 3, 0)).unwrap().tokens.len(),
        3
    );
}

#[test]
fn a_full_queue_refuses_and_a_stopped_engine_answers() {
    let engine = engine(
        "llama",
        EngineConfig {
            sequences: 1,
            waiting: 3,
            ..config()
        },
    );
    let (sender, receiver) = mpsc::channel();
    let mut tickets = Vec::new();
    let mut refused = 0;
    for seed in 0..30 {
        let sender = sender.clone();
        let sink = Box::new(move |event| {
            if !matches!(event, Event::Token { .. }) {
                let _ = sender.send(event);
            }
        });
        match engine.submit(plain(&[5, 6, 7], 200, seed), sink) {
            Ok(ticket) => tickets.push(ticket),
            Err(LmError::Busy { limit: 3, .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0);
    drop(engine);
    drop(sender);
    // Every request that was taken has its answer.
    assert_eq!(receiver.iter().count(), tickets.len());
}
