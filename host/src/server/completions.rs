//! `/v1/completions`

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde::Deserialize;
use whale_lm::{Request, Work};

use super::{
    Fault, Server,
    answer::{Answer, Kind, answer},
    replies::Replies,
    request::{Body, Common},
};

#[derive(Deserialize)]
pub(super) struct Completion {
    prompt: Prompts,
    /// How many of the likeliest tokens to give.
    logprobs: Option<usize>,
    /// vLLM's: the log-probability of each of the prompt's own tokens, with 0 of the likeliest.
    prompt_logprobs: Option<usize>,
    echo: Option<bool>,
    suffix: Option<String>,
    best_of: Option<u32>,
    #[serde(flatten)]
    common: Common,
}

/// Texts or token ids.
#[derive(Deserialize)]
#[serde(untagged)]
enum Prompts {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    ManyIds(Vec<Vec<u32>>),
}

/// The most prompts of one request.
const PROMPTS: usize = 256;

pub(super) async fn handle(
    State(server): State<Arc<Server>>,
    Body(completion): Body<Completion>,
) -> Result<Response, Fault> {
    answer(move || start(server, completion)).await
}

fn start(server: Arc<Server>, completion: Completion) -> Result<(Answer, Replies), Fault> {
    let form = completion.common.form()?;
    let adapter = server.adapter_of(&completion.common.model)?;
    if completion.echo.unwrap_or(false) {
        return Err(Fault::setting("echo", "`echo` is not known here"));
    }
    if completion
        .suffix
        .as_ref()
        .is_some_and(|suffix| !suffix.is_empty())
    {
        return Err(Fault::setting("suffix", "`suffix` is not known here"));
    }
    if completion.best_of.is_some_and(|best| best != form.replies) {
        return Err(Fault::setting(
            "best_of",
            "`best_of` is not known here; `n` is",
        ));
    }
    let engine = &server.engine;
    let encode = |text: String| engine.model().encode_prompt(&text).map_err(Fault::from);
    let prompts: Vec<Vec<u32>> = match completion.prompt {
        Prompts::Text(text) => vec![encode(text)?],
        Prompts::Ids(ids) => vec![ids],
        Prompts::Texts(texts) => texts.into_iter().map(encode).collect::<Result<_, _>>()?,
        Prompts::ManyIds(many) => many,
    };
    if prompts.is_empty() || prompts.len() > PROMPTS {
        let message = format!(
            "there are {} prompts; it must be 1 to {PROMPTS}",
            prompts.len()
        );
        return Err(Fault::setting("prompt", message));
    }
    let longest = prompts.iter().map(Vec::len).max().unwrap_or_default();
    let room = engine.context().saturating_sub(longest).max(1);
    let top = completion.logprobs.unwrap_or(0);
    // The protocol's default here is short.
    let generate = completion.common.generate(None, room.min(16), top)?;
    let count = form.replies as usize;
    let replies = Replies::start(
        Arc::clone(&server),
        &prompts,
        count,
        &generate,
        adapter.as_deref(),
    )?;
    let model = completion.common.model;
    let logprobs = completion.logprobs.is_some();
    let of_prompts = match completion.prompt_logprobs {
        None => None,
        Some(0) => Some(score(&server, &prompts, adapter.as_deref())?),
        Some(_) => {
            return Err(Fault::setting(
                "prompt_logprobs",
                "`prompt_logprobs` is 0 here: the prompt's own tokens and no others",
            ));
        }
    };
    let answer = Answer::new(server, Kind::Text, model, form, prompts, logprobs);
    Ok((answer.with_prompts(of_prompts), replies))
}

/// The log-probability of each token of each prompt but its first.
fn score(
    server: &Server,
    prompts: &[Vec<u32>],
    adapter: Option<&str>,
) -> Result<Vec<Vec<f32>>, Fault> {
    let one = |prompt: &Vec<u32>| {
        let Some((first, rest)) = prompt.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return Ok(Vec::new());
        };
        let request = Request {
            prompt: vec![*first],
            work: Work::Score(rest.to_vec()),
            adapter: adapter.map(str::to_owned),
        };
        Ok(server.engine.score(request)?.log_probabilities)
    };
    prompts.iter().map(one).collect()
}
