//! A retrieval server that speaks Search-R1's protocol, and ones that do not.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Json, Router, http::StatusCode, response::IntoResponse as _, routing::post};
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime};

use crate::evaluation::{Bench, QUESTIONS, SEARCHQA};

/// A server that answers like this; and how often it was asked.
fn server(
    answer: impl Fn(usize, Value) -> (StatusCode, String) + Clone + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>, Runtime) {
    let runtime = Runtime::new().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let handle = move |Json(body): Json<Value>| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let answer = answer.clone();
        async move { answer(number, body).into_response() }
    };
    let router = Router::new().route("/retrieve", post(handle));
    runtime.spawn(async { axum::serve(listener, router).await });
    (address, asked, runtime)
}

fn bench(address: &str) -> Bench {
    let settings = SEARCHQA.replace("index = \"index\"", &format!("url = \"{address}\""));
    let bench = Bench::new(&settings, &[("task/items.jsonl", QUESTIONS)]);
    bench.build("h0-searchqa");
    bench.script(
        r#"{"when": "<information>Danube", "replies": ["<answer>Black Forest</answer>"]}
{"replies": ["<search>Danube</search>"]}"#,
    );
    bench
}

fn good(body: &Value) -> (StatusCode, String) {
    assert_eq!(body["return_scores"], true);
    assert_eq!(body["topk"], 1);
    let document =
        json!({ "id": "7", "contents": "\"Danube\"\nThe Danube rises in the Black Forest." });
    let answer = json!({ "result": [[{ "document": document, "score": 12.5 }]] });
    (StatusCode::OK, answer.to_string())
}

#[test]
fn a_server_is_asked_and_its_passages_are_read() {
    let (address, asked, _runtime) = server(|number, body| {
        if number == 0 {
            // Once in a while, a server fails.
            return (StatusCode::SERVICE_UNAVAILABLE, String::new());
        }
        good(&body)
    });
    let bench = bench(&address);
    let found = bench.eval("h0-searchqa", &[]);
    assert_eq!(found["mean"]["mean"], 0.5, "{found}");
    assert_eq!(found["diagnostics"]["retrieved"], 0.5);
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[track_caller]
fn fails(address: &str, says: &str) {
    let found = bench(address).eval("h0-searchqa", &[]);
    assert_eq!(found["failed"], 2, "{found}");
    assert_eq!(found["void"], true);
    assert_eq!(found["mean"], Value::Null);
    assert!(found["errors"].to_string().contains(says), "{found}");
}

#[test]
fn a_server_that_fails_is_no_fault_of_the_harness() {
    // Nobody listens there any more.
    let (gone, _, runtime) = server(|_, body| good(&body));
    drop(runtime);
    fails(&gone, "it can't be reached");
    let (address, _, _runtime) = server(|_, _| (StatusCode::OK, "<html>".to_owned()));
    fails(&address, "its answer is not Search-R1's");
    let (address, _, _runtime) = server(|_, _| (StatusCode::OK, "{\"result\": []}".to_owned()));
    fails(&address, "it answered one query with 0 lists");
    let (address, _, _runtime) = server(|_, _| (StatusCode::OK, "x".repeat(17 << 20)));
    fails(&address, "it answered with more than");
    let (address, _, _runtime) = server(|_, _| (StatusCode::NOT_FOUND, String::new()));
    fails(&address, "it answered with 404");
}
