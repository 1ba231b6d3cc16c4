//! `serve`, over the wire, with a tiny random model.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use reqwest::Client;
use serde_json::{Value, json};

use crate::support;

/// A server of our own.
pub(crate) struct Serving {
    child: Child,
    pub(crate) address: String,
}

pub(crate) fn tiny_model() -> PathBuf {
    support::root().join("lm/fixtures/llama")
}

impl Serving {
    pub(crate) fn start(model: &str, arguments: &[&str], key: Option<&str>) -> Self {
        let mut command = Command::new(support::WHALE);
        command
            .args(["serve", model, "--port", "0"])
            .args(arguments)
            .env_remove("WHALE_API_KEY")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(key) = key {
            command.env("WHALE_API_KEY", key);
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let Some((_, address)) = line.trim().split_once("http://") else {
            let mut said = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            panic!("no server: {line}{said}");
        };
        let address = format!("http://{}", address.trim_end_matches("/v1"));
        Self { child, address }
    }

    fn tiny(arguments: &[&str]) -> Self {
        let arguments = [&["--threads", "2"], arguments].concat();
        Self::start(tiny_model().to_str().unwrap(), &arguments, None)
    }

    async fn post(&self, client: &Client, path: &str, body: &Value) -> (u16, Value) {
        let sent = client
            .post(format!("{}{path}", self.address))
            .json(body)
            .send();
        let response = sent.await.unwrap();
        (
            response.status().as_u16(),
            response.json().await.unwrap_or_default(),
        )
    }

    async fn metric(&self, client: &Client, name: &str) -> f64 {
        let text = client.get(format!("{}/metrics", self.address)).send();
        let text = text.await.unwrap().text().await.unwrap();
        let row = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .unwrap();
        row.split_once(' ').unwrap().1.parse().unwrap()
    }

    /// Waits until nothing runs, waits or holds memory.
    async fn drained(&self, client: &Client) {
        let begin = Instant::now();
        for name in [
            "whale_sequences_running",
            "whale_sequences_waiting",
            "whale_pages_used",
        ] {
            while self.metric(client, name).await > 0.0 {
                assert!(
                    begin.elapsed() < Duration::from_secs(20),
                    "`{name}` stays above 0"
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Its resident memory, in bytes.
    fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<f64>()
            .unwrap()
            * 1024.0
    }

    fn signal(&self, signal: i32) {
        let id = i32::try_from(self.child.id()).unwrap();
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(id),
            nix::sys::signal::Signal::try_from(signal).unwrap(),
        )
        .unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(work)
}

fn chat(content: &str) -> Value {
    json!({ "model": "llama", "messages": [{ "role": "user", "content": content }], "max_tokens": 4 })
}

fn with(mut body: Value, changes: &[(&str, Value)]) -> Value {
    for (key, value) in changes {
        body[*key] = value.clone();
    }
    body
}

#[test]
fn wrong_requests_are_refused_with_a_reason() {
    run(async {
        let server = Serving::tiny(&["--context", "64"]);
        let client = Client::new();
        let long = "x".repeat(100);
        let user = chat("hi");
        let cases = [
            (
                "/v1/chat/completions",
                with(user.clone(), &[("model", json!("nothing"))]),
            ),
            ("/v1/chat/completions", json!({ "model": "llama" })),
            (
                "/v1/chat/completions",
                with(user.clone(), &[("messages", json!([]))]),
            ),
            (
                "/v1/chat/completions",
                with(
                    user.clone(),
                    &[("messages", json!([{ "role": "wizard", "content": "x" }]))],
                ),
            ),
            (
                "/v1/chat/completions",
                with(
                    user.clone(),
                    &[(
                        "messages",
                        json!([{ "role": "user", "content": [{ "type": "image_url" }] }]),
                    )],
                ),
            ),
            ("/v1/chat/completions", chat(&long)),
            (
                "/v1/chat/completions",
                with(user.clone(), &[("temperature", json!(-1))]),
            ),
            (
                "/v1/chat/completions",
                with(user.clone(), &[("n", json!(0))]),
            ),
            (
                "/v1/chat/completions",
                with(user.clone(), &[("top_logprobs", json!(3))]),
            ),
            (
                "/v1/chat/completions",
                with(user.clone(), &[("frequency_penalty", json!(0.5))]),
            ),
            (
                "/v1/chat/completions",
                with(user.clone(), &[("tool_choice", json!("required"))]),
            ),
            (
                "/v1/chat/completions",
                with(
                    user.clone(),
                    &[(
                        "tools",
                        json!([{ "type": "function", "function": { "name": "f" } }]),
                    )],
                ),
            ),
            (
                "/v1/chat/completions",
                with(
                    user.clone(),
                    &[(
                        "response_format",
                        json!({ "type": "json_schema", "json_schema": { "schema": { "type": 3 } } }),
                    )],
                ),
            ),
            (
                "/v1/completions",
                json!({ "model": "llama", "prompt": [1, 2, 999] }),
            ),
            ("/v1/completions", json!({ "model": "llama", "prompt": [] })),
            (
                "/v1/completions",
                json!({ "model": "llama", "prompt": "x", "echo": true }),
            ),
            ("/v1/embeddings", json!({})),
            (
                "/v1/load_lora_adapter",
                json!({ "lora_name": "a", "lora_path": "adapter" }),
            ),
            ("/v1/unload_lora_adapter", json!({ "lora_name": "a" })),
            ("/v1/nothing", json!({})),
        ];
        let mut said = String::new();
        for (path, body) in cases {
            let (status, answer) = server.post(&client, path, &body).await;
            writeln!(said, "{status} {path} {}", answer["error"]["message"]).unwrap();
        }
        let url = format!("{}/v1/chat/completions", server.address);
        let plain = client
            .post(&url)
            .body(user.to_string())
            .send()
            .await
            .unwrap();
        writeln!(said, "{} without a content type", plain.status()).unwrap();
        let json = client.post(&url).header("content-type", "application/json");
        let broken = json.body("{\"model\": ").send().await.unwrap();
        writeln!(said, "{} {}", broken.status(), broken.text().await.unwrap()).unwrap();
        let json = client.post(&url).header("content-type", "application/json");
        let large = json.body(vec![b' '; 9 << 20]).send().await.unwrap();
        writeln!(said, "{} a body of 9 MiB", large.status()).unwrap();
        support::check("server_refusals", &said);
    });
}

#[test]
fn only_the_key_opens_and_only_a_key_lets_others_in() {
    run(async {
        let model = tiny_model();
        let server = Serving::start(model.to_str().unwrap(), &[], Some("secret"));
        let models = format!("{}/v1/models", server.address);
        let status = async |key: Option<&str>| {
            let request = Client::new().get(&models);
            let request = if let Some(key) = key {
                request.bearer_auth(key)
            } else {
                request
            };
            request.send().await.unwrap().status().as_u16()
        };
        assert_eq!(status(None).await, 401);
        assert_eq!(status(Some("wrong")).await, 401);
        assert_eq!(status(Some("secret")).await, 200);
        let health = Client::new().get(format!("{}/health", server.address));
        assert_eq!(health.send().await.unwrap().status(), 200);
    });
    let folder = tempfile::tempdir().unwrap();
    let model = tiny_model();
    let open = [
        "serve",
        model.to_str().unwrap(),
        "--host",
        "0.0.0.0",
        "--port",
        "0",
    ];
    let refused = support::whale(folder.path(), &open)
        .env_remove("WHALE_API_KEY")
        .output();
    support::check(
        "serve_open_without_key",
        &support::transcript(&refused.unwrap()),
    );
}

#[test]
fn adapters_are_loaded_from_their_folder_and_from_nowhere_else() {
    run(async {
        let model = tiny_model();
        let server = Serving::tiny(&["--adapters", model.to_str().unwrap()]);
        let client = Client::new();
        let load = async |name: &str, path: &str| {
            let body = json!({ "lora_name": name, "lora_path": path });
            server.post(&client, "/v1/load_lora_adapter", &body).await.0
        };
        for outside in [
            "../gemma3/adapter",
            "/etc",
            ".",
            "adapter/../../qwen2/adapter",
            "missing",
        ] {
            assert_eq!(load("a", outside).await, 400, "{outside}");
        }
        assert_eq!(load("llama", "adapter").await, 400);
        let reply = async |model: &str| {
            let body = json!({ "model": model, "prompt": [5, 6, 7], "max_tokens": 8, "seed": 1 });
            let (status, answer) = server.post(&client, "/v1/completions", &body).await;
            (status, answer["choices"][0]["text"].clone())
        };
        let plain = reply("llama").await;
        assert_eq!(reply("a").await.0, 404);
        assert_eq!(load("a", "adapter").await, 200);
        let adapted = reply("a").await;
        assert_eq!(adapted.0, 200);
        assert_ne!(adapted.1, plain.1);
        assert_eq!(reply("llama").await, plain);
        let body = json!({ "lora_name": "a" });
        assert_eq!(
            server
                .post(&client, "/v1/unload_lora_adapter", &body)
                .await
                .0,
            200
        );
        assert_eq!(reply("a").await.0, 404);
    });
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    run(async {
        let server = Serving::tiny(&["--sequences", "1", "--queue", "1"]);
        let client = Client::new();
        let body =
            json!({ "model": "llama", "prompt": [5, 6], "max_tokens": 200, "ignore_eos": true });
        let url = format!("{}/v1/completions", server.address);
        let all = (0..30).map(|_| client.post(&url).json(&body).send());
        let answers = futures::future::join_all(all).await;
        let (mut done, mut refused) = (0, 0);
        for answer in answers {
            let answer = answer.unwrap();
            match answer.status().as_u16() {
                200 => done += 1,
                429 => {
                    assert_eq!(answer.headers()["retry-after"], "1");
                    refused += 1;
                }
                other => panic!("{other}"),
            }
        }
        assert!(done > 0 && refused > 0, "{done} {refused}");
    });
}

#[test]
fn a_stop_lets_running_requests_end() {
    run(async {
        let mut server = Serving::tiny(&[]);
        let client = Client::new();
        let body = json!({
            "model": "llama", "prompt": [5, 6], "max_tokens": 250, "ignore_eos": true,
            "stream": true,
        });
        let url = format!("{}/v1/completions", server.address);
        let response = client.post(&url).json(&body).send().await.unwrap();
        let mut stream = response.bytes_stream();
        let first = stream.next().await.unwrap().unwrap();
        server.signal(15);
        let mut text = String::from_utf8(first.to_vec()).unwrap();
        while let Some(part) = stream.next().await {
            text.push_str(std::str::from_utf8(&part.unwrap()).unwrap());
        }
        assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
        let status = server.child.wait().unwrap();
        assert_eq!(status.code(), Some(0));
        assert!(client.post(&url).json(&body).send().await.is_err());
    });
}

#[test]
fn the_official_client_is_served() {
    let python = support::cache().join("openai-client/bin/python");
    let script = support::root().join("tests/all/openai_client.py");
    let model = support::cache().join("models/smollm2-135m.gguf");
    let server = Serving::start(model.to_str().unwrap(), &[], None);
    let output = Command::new(&python)
        .arg(script)
        .args([server.address.as_str(), "smollm2-135m"])
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "`{}`: {error}; `cargo xtask test` sets it up",
                python.display()
            )
        });
    assert!(output.status.success(), "{}", support::transcript(&output));
}

/// A request of the soak: what it is depends on its number alone.
fn soak_request(number: usize) -> (&'static str, Value, u16) {
    let prompt: Vec<usize> = (0..3 + number * 7 % 40)
        .map(|i| 3 + (i * 5 + number) % 90)
        .collect();
    let plain = json!({
        "model": "gemma3", "prompt": prompt, "max_tokens": 4 + number * 11 % 200, "seed": number,
        "ignore_eos": true,
    });
    let completions = "/v1/completions";
    match number % 10 {
        0 => {
            let choices = json!({ "choice": ["yes", "no", "perhaps"] });
            (
                completions,
                with(plain, &[("structured_outputs", choices)]),
                200,
            )
        }
        1 => {
            let digits = json!({ "regex": "[0-9]{2,6}" });
            (
                completions,
                with(plain, &[("structured_outputs", digits)]),
                200,
            )
        }
        2 => {
            let schema =
                json!({ "type": "json_schema", "json_schema": { "schema": { "type": 1 } } });
            (
                completions,
                with(plain, &[("response_format", schema)]),
                400,
            )
        }
        3 => (
            completions,
            with(plain, &[("prompt", json!(vec![5; 400]))]),
            400,
        ),
        4 => (
            completions,
            with(plain, &[("n", json!(3)), ("logprobs", json!(2))]),
            200,
        ),
        5 => {
            let talk = json!([{ "role": "user", "content": format!("say {number}") }]);
            let chat =
                json!({ "model": "gemma3", "messages": talk, "max_tokens": 9, "seed": number });
            ("/v1/chat/completions", chat, 200)
        }
        6 => (
            completions,
            with(plain, &[("temperature", json!(0)), ("stop", json!(["a"]))]),
            200,
        ),
        _ => (completions, plain, 200),
    }
}

/// 2,000 requests of 70 kinds over 50 connections, some given up in the middle, some broken: each
/// is answered as when it comes alone, and nothing is left over.
#[test]
fn slow_a_soak_leaves_nothing_behind() {
    const KINDS: usize = 70;
    run(async {
        let model = support::root().join("lm/fixtures/gemma3");
        // So little memory that sequences are put back.
        let arguments = ["--threads", "2", "--memory", "1", "--sequences", "40"];
        let server = Serving::start(model.to_str().unwrap(), &arguments, None);
        let client = Client::builder()
            .pool_max_idle_per_host(50)
            .build()
            .unwrap();
        let ask = async |number: usize| {
            let (path, body, _) = soak_request(number);
            let (status, answer) = server.post(&client, path, &body).await;
            (status, answer["choices"].clone(), answer["error"].clone())
        };
        let mut alone = Vec::new();
        for number in 0..KINDS {
            let (status, choices, error) = ask(number).await;
            assert_eq!(status, soak_request(number).2, "{number}: {error}");
            assert!(status == 200 || error["message"].is_string(), "{number}");
            alone.push((status, choices, error));
        }
        let soak = async |requests: usize| {
            let work = futures::stream::iter(0..requests).map(async |index| {
                let number = index * 31 % KINDS;
                if index % 9 == 4 {
                    // Given up at some moment.
                    let wait = Duration::from_millis(index as u64 * 7 % 30);
                    let _ = tokio::time::timeout(wait, ask(number)).await;
                    return;
                }
                if index % 13 == 6 {
                    let url = format!("{}/v1/completions", server.address);
                    let broken = client.post(url).header("content-type", "application/json");
                    let answer = broken.body("{\"model\": [").send().await.unwrap();
                    assert_eq!(answer.status(), 400);
                    return;
                }
                assert_eq!(ask(number).await, alone[number], "{number}");
            });
            work.buffer_unordered(50).collect::<Vec<()>>().await;
            server.drained(&client).await;
        };
        // What stays allocated is filled first. What is lost grows in every round after that; pages
        // that the allocator takes in one round, because threads met differently, stay.
        soak(12_000).await;
        let mut rounds = vec![server.memory()];
        let settled = |rounds: &[f64]| rounds.windows(2).any(|pair| pair[1] < pair[0] * 1.05);
        while !settled(&rounds) && rounds.len() < 5 {
            soak(2000).await;
            rounds.push(server.memory());
        }
        assert!(
            settled(&rounds),
            "memory grew in every round of 2000 requests: {rounds:?} bytes"
        );
        assert!(
            server
                .metric(&client, "whale_sequences_cancelled_total")
                .await
                > 0.0
        );
        assert!(
            server
                .metric(&client, "whale_sequences_put_back_total")
                .await
                > 0.0
        );
    });
}
