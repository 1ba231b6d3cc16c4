//! Counts what an episode asks of the host, and says when it is too much.

use serde_json::Value;

use crate::{
    LimitHit, Limits,
    contract::{Budget, Completion, Constraint, HostError, Prompt, Request},
};

/// What an episode has used so far, next to its limits.
#[derive(Debug)]
pub(super) struct Meter {
    limits: Limits,
    model_calls: u64,
    tool_calls: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
    batch: u64,
    call_bytes: u64,
    total_bytes: u64,
    note_lines: u64,
    note_bytes: u64,
}

impl Meter {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            model_calls: 0,
            tool_calls: 0,
            prompt_tokens: 0,
            completion_tokens: 0,
            batch: 0,
            call_bytes: 0,
            total_bytes: 0,
            note_lines: 0,
            note_bytes: 0,
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn used(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("model-calls", self.model_calls),
            ("tool-calls", self.tool_calls),
            ("prompt-tokens", self.prompt_tokens),
            ("completion-tokens", self.completion_tokens),
            ("batch", self.batch),
            ("call-bytes", self.call_bytes),
            ("total-bytes", self.total_bytes),
            ("note-lines", self.note_lines),
            ("note-bytes", self.note_bytes),
        ]
    }

    pub(super) fn left(&self) -> Budget {
        let limits = &self.limits;
        Budget {
            model_calls: limits.model_calls.saturating_sub(self.model_calls),
            tool_calls: limits.tool_calls.saturating_sub(self.tool_calls),
            prompt_tokens: limits.prompt_tokens.saturating_sub(self.prompt_tokens),
            completion_tokens: limits
                .completion_tokens
                .saturating_sub(self.completion_tokens),
        }
    }

    fn over(&self, limit: &str) -> HostError {
        HostError::Limit(self.limits.hit(limit))
    }

    /// Counts bytes that cross the border, either way.
    pub(super) fn bytes(&mut self, bytes: u64) -> Result<(), LimitHit> {
        self.call_bytes = self.call_bytes.max(bytes);
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        if bytes > self.limits.call_bytes {
            return Err(self.limits.hit("call-bytes"));
        }
        if self.total_bytes > self.limits.total_bytes {
            return Err(self.limits.hit("total-bytes"));
        }
        Ok(())
    }

    pub(super) fn batch(&mut self, requests: usize) -> Result<(), HostError> {
        self.batch = self.batch.max(requests as u64);
        if requests as u64 > self.limits.batch {
            return Err(self.over("batch"));
        }
        Ok(())
    }

    /// Takes one request to the model, or says which limit forbids it.
    pub(super) fn model_call(&mut self) -> Result<(), HostError> {
        let left = self.left();
        if left.model_calls == 0 {
            return Err(self.over("model-calls"));
        }
        if left.prompt_tokens == 0 {
            return Err(self.over("prompt-tokens"));
        }
        if left.completion_tokens == 0 {
            return Err(self.over("completion-tokens"));
        }
        self.model_calls += 1;
        Ok(())
    }

    /// How long the reply to one of `requests` requests that run at once may be.
    pub(super) fn reply_tokens(&self, asked: Option<u32>, requests: usize) -> u32 {
        let share = self.left().completion_tokens / (requests.max(1) as u64);
        let most = self.limits.reply_tokens.min(share).max(1);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        asked.map_or(most, |asked| asked.clamp(1, most))
    }

    pub(super) fn completed(&mut self, completion: &Completion) {
        self.prompt_tokens += u64::from(completion.usage.prompt_tokens);
        self.completion_tokens += u64::from(completion.usage.completion_tokens);
    }

    pub(super) fn tool_call(&mut self) -> Result<(), HostError> {
        if self.tool_calls >= self.limits.tool_calls {
            return Err(self.over("tool-calls"));
        }
        self.tool_calls += 1;
        Ok(())
    }

    pub(super) fn note(&mut self, bytes: usize) -> Result<(), HostError> {
        if self.note_lines >= self.limits.note_lines {
            return Err(self.over("note-lines"));
        }
        if self.note_bytes + bytes as u64 > self.limits.note_bytes {
            return Err(self.over("note-bytes"));
        }
        self.note_lines += 1;
        self.note_bytes += bytes as u64;
        Ok(())
    }

    /// Refuses a request that no model should see.
    pub(super) fn check(&self, request: &Request) -> Result<(), HostError> {
        let invalid = |message: &str| Err(HostError::Invalid(message.to_owned()));
        match &request.prompt {
            Prompt::Chat(messages) if messages.is_empty() => {
                return invalid("a chat needs at least one message");
            }
            Prompt::Chat(messages) => {
                for call in messages.iter().flat_map(|message| &message.tool_calls) {
                    self.json("the arguments of a tool call", &call.arguments)?;
                }
            }
            Prompt::Raw(text) if text.is_empty() => return invalid("a raw prompt can't be empty"),
            Prompt::Raw(_) => {}
        }
        for tool in &request.tools {
            self.json("the parameters of a tool", &tool.parameters)?;
        }
        match &request.constraint {
            Some(Constraint::JsonSchema(schema)) => self.json("a JSON schema", schema)?,
            Some(Constraint::Choices(choices)) if choices.is_empty() => {
                return invalid("a constraint to choices needs at least one");
            }
            _ => {}
        }
        let sampling = &request.sampling;
        let bounds = [
            ("temperature", sampling.temperature, 0.0, 10.0),
            ("top-p", sampling.top_p, 0.0, 1.0),
            ("min-p", sampling.min_p, 0.0, 1.0),
            ("repetition-penalty", sampling.repetition_penalty, 0.0, 10.0),
        ];
        for (name, value, least, most) in bounds {
            if value.is_some_and(|value| !(least..=most).contains(&value)) {
                return invalid(&format!("`{name}` lies between {least} and {most}"));
            }
        }
        Ok(())
    }

    fn json(&self, what: &str, text: &str) -> Result<(), HostError> {
        if depth(text) > self.limits.json_depth {
            return Err(self.over("json-depth"));
        }
        match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(_)) => Ok(()),
            Ok(_) => Err(HostError::Invalid(format!("{what} must be a JSON object"))),
            Err(error) => Err(HostError::Invalid(format!("{what} must be JSON: {error}"))),
        }
    }
}

/// How deep a JSON text nests, without parsing it: a parser may recurse.
fn depth(text: &str) -> u64 {
    let (mut depth, mut deepest) = (0_u64, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn nesting_is_counted_outside_strings() {
        assert_eq!(depth("1"), 0);
        assert_eq!(depth(r#"{"a": [1, {"b": 2}]}"#), 3);
        assert_eq!(depth(r#"{"a": "[[[\"[["}"#), 1);
        assert_eq!(depth(&"[".repeat(100_000)), 100_000);
    }
}
