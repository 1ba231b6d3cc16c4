//! Tool calls, in the formats that the families write them in.
//!
//! - Qwen2.5, Qwen3, SmolLM2, Hermes: `<tool_call>` around JSON with `name` and `arguments`.
//! - Qwen3.5: `<tool_call>` around `<function=NAME>` with `<parameter=KEY>` inside.
//! - Llama 3: JSON with `name` and `parameters`, alone or behind `<|python_tag|>`.

use serde_json::{Map, Value};

/// A call that a model asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Names the call in the tool's answer.
    pub id: String,
    /// The tool.
    pub name: String,
    /// A JSON object.
    pub arguments: String,
}

/// Takes the calls out of a reply: what is left of its text, and the calls. What looks like a call
/// but is none stays text.
#[must_use]
pub fn parse(text: &str) -> (String, Vec<ToolCall>) {
    let mut calls = Vec::new();
    let mut left = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<tool_call>") {
        // A reply that was cut short may lack the end.
        let (body, after) = after.split_once("</tool_call>").unwrap_or((after, ""));
        let found = json_calls(body, "arguments").or_else(|| marked_call(body));
        left.push_str(before);
        match found {
            Some(found) => calls.extend(found),
            None => {
                let length = rest.len() - before.len() - after.len();
                left.push_str(&rest[before.len()..before.len() + length]);
            }
        }
        rest = after;
    }
    left.push_str(rest);
    if calls.is_empty() {
        let body = text.trim().trim_start_matches("<|python_tag|>");
        if let Some(found) = json_calls(body, "parameters") {
            calls = found;
            left.clear();
        }
    }
    for (index, call) in calls.iter_mut().enumerate() {
        call.id = format!("call_{index}");
    }
    if calls.is_empty() {
        (text.to_owned(), calls)
    } else {
        (left.trim().to_owned(), calls)
    }
}

fn json_calls(body: &str, arguments: &str) -> Option<Vec<ToolCall>> {
    let value: Value = serde_json::from_str(body.trim()).ok()?;
    let several = match value {
        Value::Array(several) if !several.is_empty() => several,
        one => vec![one],
    };
    several
        .into_iter()
        .map(|call| json_call(&call, arguments))
        .collect()
}

fn json_call(call: &Value, arguments: &str) -> Option<ToolCall> {
    let name = call.get("name")?.as_str()?.to_owned();
    let arguments = match call.get(arguments)? {
        Value::Object(map) => Value::Object(map.clone()).to_string(),
        Value::String(text) => {
            let map: Map<String, Value> = serde_json::from_str(text).ok()?;
            Value::Object(map).to_string()
        }
        _ => return None,
    };
    Some(ToolCall {
        id: String::new(),
        name,
        arguments,
    })
}

fn marked_call(body: &str) -> Option<Vec<ToolCall>> {
    let (_, rest) = body.split_once("<function=")?;
    let (name, mut rest) = rest.split_once('>')?;
    let mut arguments = Map::new();
    while let Some((_, after)) = rest.split_once("<parameter=") {
        let (key, after) = after.split_once('>')?;
        let (value, after) = after.split_once("</parameter>")?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        // Numbers, lists and objects are written as JSON, texts as they are.
        let value = match serde_json::from_str(value) {
            Ok(Value::String(_)) | Err(_) => Value::String(value.to_owned()),
            Ok(other) => other,
        };
        arguments.insert(key.trim().to_owned(), value);
        rest = after;
    }
    let arguments = Value::Object(arguments).to_string();
    Some(vec![ToolCall {
        id: String::new(),
        name: name.trim().to_owned(),
        arguments,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, left: &str, calls: &[(&str, &str)]) {
        let (found_left, found) = parse(text);
        let found: Vec<_> = found
            .iter()
            .map(|call| (call.name.as_str(), call.arguments.as_str()))
            .collect();
        assert_eq!(
            (found_left.as_str(), found.as_slice()),
            (left, calls),
            "{text}"
        );
    }

    #[test]
    fn calls_of_every_family_are_found() {
        check(
            "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n\
             <tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
            "Let me see.",
            &[("add", r#"{"a":1}"#), ("now", "{}")],
        );
        check(
            "<tool_call>[{\"name\": \"f\", \"arguments\": {\"x\": \"y\"}}]</tool_call>",
            "",
            &[("f", r#"{"x":"y"}"#)],
        );
        check(
            "<tool_call>\n<function=find>\n<parameter=query>\nold \"ships\"\n</parameter>\n\
             <parameter=k>\n3\n</parameter>\n</function>\n</tool_call>",
            "",
            &[("find", r#"{"query":"old \"ships\"","k":3}"#)],
        );
        check(
            "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"x\": [1]}}",
            "",
            &[("f", r#"{"x":[1]}"#)],
        );
    }

    #[test]
    fn what_is_no_call_stays_text() {
        for text in [
            "plain",
            "<tool_call>not json</tool_call> and more",
            "{\"answer\": 42}",
            "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>",
            "<tool_call>",
        ] {
            check(text, text, &[]);
        }
    }
}
