//! The OpenAI protocol against a server that behaves in every way that servers do.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::time::Instant as Deadline;
use whale_runtime::{
    contract::{Completion, Constraint, Message, Prompt, Request, Role, Sampling, Tool, ToolCall},
    ports::{ChatModel as _, ModelRequest, OpenAi, OpenAiConfig, PortError, Secret},
};

use crate::support;

/// What the server does with one request.
enum Act {
    Answer(u16, &'static str, String),
    Raw(&'static str),
    Hang,
}

fn ok(text: &str) -> Act {
    let body = json!({
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    });
    Act::Answer(200, "", body.to_string())
}

fn status(code: u16, headers: &'static str) -> Act {
    Act::Answer(
        code,
        headers,
        json!({"error": {"message": "said so \u{1b}[31m"}}).to_string(),
    )
}

#[derive(Clone)]
struct Seen {
    head: String,
    body: Value,
    at: Instant,
}

struct Server {
    base: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// A server that does one thing after another, and the last one for ever.
    fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}/v1", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let act = &acts[number.min(acts.len() - 1)];
                serve(stream.unwrap(), act, &log);
            }
        });
        Self { base, seen }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn client(&self, change: impl FnOnce(&mut OpenAiConfig)) -> OpenAi {
        let key = Some(Secret::new("sk-very-secret".to_owned()));
        let mut config = OpenAiConfig::new(self.base.clone(), "tiny".to_owned(), key);
        change(&mut config);
        OpenAi::new(config).unwrap()
    }

    async fn complete(&self, request: &Request) -> Result<Completion, PortError> {
        ask(&self.client(|_| {}), request, Duration::from_secs(30)).await
    }
}

fn serve(stream: TcpStream, act: &Act, log: &Mutex<Vec<Seen>>) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    log.lock().unwrap().push(Seen {
        head,
        body,
        at: Instant::now(),
    });
    let mut stream = reader.into_inner();
    let _ = match act {
        Act::Answer(code, headers, body) => write!(
            stream,
            "HTTP/1.1 {code} X\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        ),
        Act::Raw(text) => stream.write_all(text.as_bytes()),
        Act::Hang => {
            thread::spawn(move || {
                thread::sleep(Duration::from_secs(20));
                drop(stream);
            });
            return;
        }
    };
}

async fn ask(client: &OpenAi, request: &Request, wall: Duration) -> Result<Completion, PortError> {
    let deadline = Deadline::now() + wall;
    let request = ModelRequest {
        request,
        max_tokens: 16,
        seed: 8,
        deadline,
    };
    client.complete(request).await.map(|reply| reply.completion)
}

fn request(prompt: Prompt) -> Request {
    let sampling = Sampling {
        temperature: Some(0.5),
        top_k: None,
        top_p: None,
        min_p: None,
        repetition_penalty: None,
        max_tokens: None,
    };
    Request {
        prompt,
        tools: Vec::new(),
        sampling,
        stop: Vec::new(),
        constraint: None,
    }
}

fn hello() -> Request {
    request(Prompt::Chat(vec![message(Role::User, "hello")]))
}

fn message(role: Role, content: &str) -> Message {
    Message {
        role,
        content: content.to_owned(),
        tool_calls: Vec::new(),
        tool_call_id: None,
    }
}

#[tokio::test]
async fn a_conversation_with_tools_goes_both_ways() {
    let reply = json!({
        "choices": [{
            "message": {"content": null, "tool_calls": [
                {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{\"a\":2}"}},
            ]},
            "finish_reason": "tool_calls",
        }],
        "usage": {"prompt_tokens": 30, "completion_tokens": 9},
    });
    let server = Server::start(vec![Act::Answer(200, "", reply.to_string())]);
    let call = ToolCall {
        id: "c1".to_owned(),
        name: "add".to_owned(),
        arguments: "{\"a\":1}".to_owned(),
    };
    let mut request = request(Prompt::Chat(vec![
        message(Role::System, "be brief"),
        message(Role::User, "add"),
        Message {
            tool_calls: vec![call],
            ..message(Role::Assistant, "")
        },
        Message {
            tool_call_id: Some("c1".to_owned()),
            ..message(Role::Tool, "1")
        },
    ]));
    request.stop = vec!["END".to_owned()];
    request.tools = vec![Tool {
        name: "add".to_owned(),
        description: "adds".to_owned(),
        parameters: "{\"type\":\"object\"}".to_owned(),
    }];
    request.constraint = Some(Constraint::JsonSchema("{\"type\":\"object\"}".to_owned()));
    let completion = server.complete(&request).await.unwrap();
    assert_eq!(completion.tool_calls[0].arguments, "{\"a\":2}");
    assert_eq!(
        (
            completion.usage.prompt_tokens,
            completion.usage.completion_tokens
        ),
        (30, 9)
    );

    let seen = &server.seen()[0];
    assert!(
        seen.head.starts_with("POST /v1/chat/completions HTTP/1.1"),
        "{}",
        seen.head
    );
    assert!(seen.head.contains("Bearer sk-very-secret"));
    let expected = json!({
        "model": "tiny", "max_tokens": 16, "seed": 4, "temperature": 0.5, "stop": ["END"],
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "add"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}},
            ]},
            {"role": "tool", "content": "1", "tool_call_id": "c1"},
        ],
        "tools": [{"type": "function", "function": {
            "name": "add", "description": "adds", "parameters": {"type": "object"},
        }}],
        "response_format": {"type": "json_schema", "json_schema": {
            "name": "reply", "strict": true, "schema": {"type": "object"},
        }},
    });
    assert_eq!(seen.body, expected);
}

#[tokio::test]
async fn a_raw_prompt_is_a_completion() {
    let body = json!({"choices": [{"text": " 4", "finish_reason": "length"}]}).to_string();
    let server = Server::start(vec![Act::Answer(200, "", body)]);
    let completion = server
        .complete(&request(Prompt::Raw("2+2=".to_owned())))
        .await
        .unwrap();
    assert_eq!(completion.text, " 4");
    assert!(server.seen()[0].head.starts_with("POST /v1/completions "));
    assert_eq!(server.seen()[0].body["prompt"], "2+2=");
}

#[tokio::test]
async fn what_passes_is_tried_again() {
    let server = Server::start(vec![
        status(429, "retry-after: 1\r\n"),
        status(500, ""),
        Act::Raw("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnono"),
        Act::Raw("HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n{\"half\": "),
        ok("at last"),
    ]);
    assert_eq!(server.complete(&hello()).await.unwrap().text, "at last");
    let seen = server.seen();
    assert_eq!(seen.len(), 5);
    let waited = seen[1].at - seen[0].at;
    assert!(
        (0.9..8.0).contains(&waited.as_secs_f64()),
        "waited {waited:?} after a 429"
    );
}

async fn fails(acts: Vec<Act>) -> (PortError, usize) {
    let server = Server::start(acts);
    let client = server.client(|config| {
        config.retries = 1;
        config.idle = Duration::from_millis(300);
    });
    let error = ask(&client, &hello(), Duration::from_secs(30))
        .await
        .unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(!error.to_string().contains('\u{1b}'), "{error}");
    (error, server.seen().len())
}

#[tokio::test]
async fn what_does_not_pass_is_said() {
    let infrastructure = |text: &str| PortError::Infrastructure(text.to_owned());
    let server = "the model's server";
    assert_eq!(
        fails(vec![status(429, "retry-after: 0\r\n")]).await,
        (
            infrastructure(&format!("{server} failed: it has too many requests (429)")),
            2
        )
    );
    assert_eq!(
        fails(vec![status(503, "retry-after: 0\r\n")]).await,
        (
            infrastructure(&format!(
                "{server} failed: it answered 503: said so \\u{{1b}}[31m"
            )),
            2
        )
    );
    assert_eq!(
        fails(vec![status(401, "")]).await,
        (
            infrastructure(&format!(
                "{server} refused (401): it does not accept the key in `OPENAI_API_KEY`"
            )),
            1
        )
    );
    assert_eq!(
        fails(vec![status(400, "")]).await,
        (
            PortError::Invalid(format!(
                "{server} refused the request: said so \\u{{1b}}[31m"
            )),
            1
        )
    );
    let (error, _) = fails(vec![Act::Answer(200, "", "{\"choices\": []}".to_owned())]).await;
    assert_eq!(
        error,
        infrastructure(&format!("{server} sent a reply without choices"))
    );
    let (error, tries) = fails(vec![Act::Hang]).await;
    assert!(
        error.to_string().contains("timed out") && tries == 2,
        "{error}"
    );
    let (error, _) = fails(vec![status(302, "location: http://127.0.0.1:9/\r\n")]).await;
    assert!(error.to_string().contains("answered 302"), "{error}");
}

#[tokio::test]
async fn the_episodes_end_ends_a_request() {
    let server = Server::start(vec![Act::Hang]);
    let start = Instant::now();
    let client = server.client(|_| {});
    let error = ask(&client, &hello(), Duration::from_millis(400))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("did not answer in time"),
        "{error}"
    );
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn what_the_protocol_can_not_do_is_named() {
    let server = Server::start(vec![ok("x")]);
    for constraint in [
        Constraint::Choices(vec!["a".to_owned()]),
        Constraint::Regex("a".to_owned()),
    ] {
        let request = Request {
            constraint: Some(constraint),
            ..hello()
        };
        let error = server.complete(&request).await.unwrap_err();
        assert!(matches!(error, PortError::Unavailable(_)), "{error}");
    }
    assert!(server.seen().is_empty());
}

/// Through the whole program: the key is in the request and nowhere else.
#[test]
fn a_key_is_never_in_a_record() {
    let server = Server::start(vec![ok("\\boxed{7}")]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    support::build("h0-math", folder);
    let model = format!("openai:{}#tiny", server.base);
    let arguments = [
        "run",
        "h0-math.wasm",
        "--prompt",
        "x",
        "--trace",
        "t.json",
        "-v",
    ];
    let mut run = support::whale(folder, &arguments);
    run.args(["--model", &model])
        .env("OPENAI_API_KEY", "sk-other-secret");
    let said = support::transcript(&run.output().unwrap());
    assert!(said.contains("answer   7"), "{said}");
    assert!(server.seen()[0].head.contains("Bearer sk-other-secret"));
    let record = std::fs::read_to_string(folder.join("t.json")).unwrap();
    for text in [&said, &record] {
        assert!(!text.contains("secret"));
        assert!(!text.contains(&server.base));
    }
}

#[test]
fn a_missing_key_is_the_hint() {
    let server = Server::start(vec![status(401, "")]);
    let folder = tempfile::tempdir().unwrap();
    support::build("h0-math", folder.path());
    let model = format!("openai:{}#tiny", server.base);
    let arguments = [
        "run",
        "h0-math.wasm",
        "--prompt",
        "x",
        "--model",
        &model,
        "--no-code",
    ];
    let said = support::say(folder.path(), &arguments);
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.starts_with("sandbox"))
        .collect();
    support::check("missing_key", &lines.join("\n"));
}
