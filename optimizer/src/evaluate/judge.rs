//! A language model that decides whether an answer means the same as a reference.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use whale_runtime::{
    Digest,
    contract::{Message, Prompt, Request, Role, Sampling},
    ports::{ChatModel, ModelRequest},
};

use super::EvaluateError;

/// One question.
const WAIT: Duration = Duration::from_secs(60);
const REPLY_TOKENS: u32 = 16;
/// The places of a prompt.
const PLACES: [&str; 3] = ["question", "references", "answer"];

/// A judge. It is asked at temperature 0, and never twice the same: verdicts are kept by the content
/// of the question.
pub struct Judge {
    model: Arc<dyn ChatModel>,
    prompt: String,
    path: PathBuf,
    kept: Mutex<Kept>,
}

struct Kept {
    verdicts: HashMap<String, bool>,
    file: File,
}

#[derive(Serialize, Deserialize)]
struct Line {
    question: String,
    accepts: bool,
}

impl Judge {
    /// A judge with this prompt, in which `{question}`, `{references}` and `{answer}` are filled in,
    /// and whose verdicts are kept in this file.
    ///
    /// # Errors
    /// When the prompt lacks a place, or the file can't be used.
    pub fn new(
        model: Arc<dyn ChatModel>,
        prompt: String,
        cache: &Path,
    ) -> Result<Self, EvaluateError> {
        for name in PLACES {
            if !prompt.contains(&format!("{{{name}}}")) {
                return Err(EvaluateError::Prompt { name });
            }
        }
        let io = |error| EvaluateError::Io {
            path: cache.display().to_string(),
            error,
        };
        let text = match fs::read_to_string(cache) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.map_err(io)?,
        };
        // A line that an ended process left half-written is no verdict.
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let verdicts = lines.map(|line| (line.question, line.accepts)).collect();
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(cache)
            .map_err(io)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(io)?;
        }
        Ok(Self {
            model,
            prompt,
            path: cache.to_owned(),
            kept: Mutex::new(Kept { verdicts, file }),
        })
    }

    /// Model and prompt, as headers name them.
    pub(super) fn name(&self) -> String {
        let prompt = Digest::of(self.prompt.as_bytes());
        format!("{}, prompt {}", self.model.identity(), prompt.short())
    }

    /// Whether the judge accepts an answer.
    pub(super) async fn accepts(
        &self,
        question: &str,
        references: &[String],
        answer: &str,
    ) -> Result<bool, String> {
        let references = references.join("\n");
        let filled = fill(&self.prompt, &[question, &references, answer]);
        let key = Digest::of_parts([self.model.identity().as_bytes(), filled.as_bytes()]);
        let key = key.as_str().to_owned();
        if let Some(verdict) = self.lock().verdicts.get(&key) {
            return Ok(*verdict);
        }
        let reply = self.ask(filled).await?;
        let accepts = verdict(&reply)
            .ok_or_else(|| format!("it said neither yes nor no: {:?}", first(&reply)))?;
        let mut kept = self.lock();
        let line = Line {
            question: key,
            accepts,
        };
        let mut json = serde_json::to_vec(&line).unwrap_or_default();
        json.push(b'\n');
        if let Err(error) = kept.file.write_all(&json) {
            // The verdict holds; it only will be asked for again.
            tracing::warn!("`{}` can't be written: {error}", self.path.display());
        }
        kept.verdicts.insert(line.question, accepts);
        Ok(accepts)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, prompt: String) -> Result<String, String> {
        let message = Message {
            role: Role::User,
            content: prompt,
            tool_calls: Vec::new(),
            tool_call_id: None,
        };
        let request = Request {
            prompt: Prompt::Chat(vec![message]),
            tools: Vec::new(),
            sampling: Sampling {
                temperature: Some(0.0),
                top_k: None,
                top_p: None,
                min_p: None,
                repetition_penalty: None,
                max_tokens: Some(REPLY_TOKENS),
            },
            stop: Vec::new(),
            constraint: None,
        };
        let request = ModelRequest {
            request: &request,
            max_tokens: REPLY_TOKENS,
            seed: 0,
            deadline: Instant::now() + WAIT,
        };
        let reply = self.model.complete(request).await;
        reply
            .map(|reply| reply.completion.text)
            .map_err(|error| error.to_string())
    }
}

/// All places at once, so that what is filled in can't have places itself.
fn fill(prompt: &str, values: &[&str; 3]) -> String {
    let mut out = String::new();
    let mut rest = prompt;
    'next: while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        for (name, value) in PLACES.iter().zip(values) {
            if let Some(after) = rest.strip_prefix(&format!("{{{name}}}")) {
                out.push_str(value);
                rest = after;
                continue 'next;
            }
        }
        out.push('{');
        rest = &rest[1..];
    }
    out + rest
}

fn first(reply: &str) -> &str {
    &reply[..reply.floor_char_boundary(40)]
}

/// The first word says it.
fn verdict(reply: &str) -> Option<bool> {
    let word: String = reply
        .trim_start_matches(|c: char| !c.is_alphabetic())
        .chars()
        .take_while(|c| c.is_alphabetic())
        .collect();
    match word.to_lowercase().as_str() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use whale_runtime::{
        contract::{Completion, FinishReason, Usage},
        ports::{ModelReply, PortError},
    };

    use super::*;

    /// Always says the same.
    struct Says(&'static str);

    #[async_trait]
    impl ChatModel for Says {
        fn name(&self) -> String {
            "a model".to_owned()
        }

        async fn complete(&self, _: ModelRequest<'_>) -> Result<ModelReply, PortError> {
            let completion = Completion {
                text: self.0.to_owned(),
                tool_calls: Vec::new(),
                finish_reason: FinishReason::Stop,
                usage: Usage {
                    prompt_tokens: 1,
                    completion_tokens: 1,
                },
            };
            Ok(ModelReply {
                completion,
                tokens: None,
            })
        }
    }

    const PROMPT: &str = "Q {question} R {references} A {answer} {else}";

    #[test]
    fn places_are_filled_once() {
        let filled = fill(PROMPT, &["{answer}", "b", "c"]);
        assert_eq!(filled, "Q {answer} R b A c {else}");
    }

    #[test]
    fn the_first_word_is_the_verdict() {
        assert_eq!(verdict("**Yes**, it is"), Some(true));
        assert_eq!(verdict("no."), Some(false));
        assert_eq!(verdict("I would say yes"), None);
        assert_eq!(verdict("notable"), None);
    }

    #[tokio::test]
    async fn verdicts_are_kept_and_failures_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("judge.jsonl");
        let judge = |says| Judge::new(Arc::new(Says(says)), PROMPT.to_owned(), &cache).unwrap();
        let references = ["a".to_owned()];
        assert!(
            judge("perhaps")
                .accepts("q", &references, "b")
                .await
                .is_err()
        );
        assert_eq!(judge("Yes").accepts("q", &references, "b").await, Ok(true));
        // The same question is not asked again; another is.
        assert_eq!(judge("No").accepts("q", &references, "b").await, Ok(true));
        assert_eq!(judge("No").accepts("q", &references, "c").await, Ok(false));
        // Half a line is no verdict, and the next is whole.
        let mut file = OpenOptions::new().append(true).open(&cache).unwrap();
        file.write_all(b"{\"question\": \"").unwrap();
        assert_eq!(judge("No").accepts("q", &references, "d").await, Ok(false));
        assert_eq!(judge("Yes").accepts("q", &references, "d").await, Ok(false));
        let short = "{question} {answer}".to_owned();
        assert!(Judge::new(Arc::new(Says("x")), short, &cache).is_err());
    }
}
