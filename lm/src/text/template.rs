//! The chat template that a model's files carry.

use minijinja::{Environment, Error, ErrorKind, Value, context, value::Kwargs};
use serde::Serialize;
use serde_json::{Value as Json, json, ser::Formatter};

use super::ToolCall;
use crate::LmError;

/// A message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text.
    pub content: String,
    /// Of an assistant's turn: the calls that it asked for.
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool's turn: the call that it answers.
    pub tool_call_id: Option<String>,
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// A JSON schema of its arguments.
    pub parameters: Json,
}

impl ChatMessage {
    fn to_json(&self) -> Json {
        let mut message = json!({ "role": self.role, "content": self.content });
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().map(|call| {
                // Templates want arguments as an object.
                let arguments: Json = serde_json::from_str(&call.arguments)
                    .unwrap_or_else(|_| Json::String(call.arguments.clone()));
                let function = json!({ "name": call.name, "arguments": arguments });
                json!({ "type": "function", "id": call.id, "function": function })
            });
            message["tool_calls"] = calls.collect();
        }
        if let Some(id) = &self.tool_call_id {
            message["tool_call_id"] = json!(id);
        }
        message
    }
}

/// A chat template that is known to render.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    beginning: String,
    end: String,
    /// Why it takes no tools, if it does not.
    no_tools: Option<String>,
}

const NAME: &str = "chat";
/// Steps of a rendering. A template is a file's, and files are not trusted.
const FUEL: u64 = 4_000_000;

impl Template {
    /// Takes a template; one that can't render a conversation is refused now, not at the first call.
    pub(crate) fn new(source: &str, beginning: String, end: String) -> Result<Self, LmError> {
        let failed = |error: Error| LmError::Template(error.to_string());
        let mut environment = Environment::new();
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.add_filter("tojson", to_json);
        // Unlike here, `none` can't be iterated in Python.
        environment.add_test("iterable", |value: &Value| {
            !value.is_none() && value.try_iter().is_ok()
        });
        environment.add_function("strftime_now", |format: &str| today(format));
        environment.add_function("raise_exception", |message: String| {
            Err::<String, _>(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment
            .add_template_owned(NAME, without_generation(source))
            .map_err(failed)?;
        let mut template = Self {
            environment,
            beginning,
            end,
            no_tools: None,
        };
        let message = |role: &str, content: &str| ChatMessage {
            role: role.to_owned(),
            content: content.to_owned(),
            ..ChatMessage::default()
        };
        let talk = [
            message("user", "a"),
            message("assistant", "b"),
            message("user", "c"),
        ];
        template.try_render(&talk, &[]).map_err(failed)?;
        if source.contains("tools") {
            template.no_tools = template.try_tools(&talk).map_err(failed)?;
        } else {
            template.no_tools = Some("the model's chat template has no place for tools".to_owned());
        }
        Ok(template)
    }

    /// Why tools are refused, if they are. What this engine lacks is an error instead.
    fn try_tools(&self, talk: &[ChatMessage]) -> Result<Option<String>, Error> {
        let tool = Tool {
            name: "f".to_owned(),
            description: "d".to_owned(),
            parameters: json!({ "type": "object", "properties": { "x": { "type": "string" } } }),
        };
        let mut talk = talk[..1].to_vec();
        talk.push(ChatMessage {
            role: "assistant".to_owned(),
            tool_calls: vec![ToolCall {
                id: "call00001".to_owned(),
                name: "f".to_owned(),
                arguments: r#"{"x": "y"}"#.to_owned(),
            }],
            ..ChatMessage::default()
        });
        talk.push(ChatMessage {
            role: "tool".to_owned(),
            content: "z".to_owned(),
            tool_call_id: Some("call00001".to_owned()),
            ..ChatMessage::default()
        });
        match self.try_render(&talk, &[tool]) {
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidOperation => Ok(Some(format!(
                "the model's chat template refuses tools: {error}"
            ))),
            Err(error) => Err(error),
        }
    }

    /// The conversation as the model reads it, ready for its next turn.
    pub(crate) fn render(
        &self,
        messages: &[ChatMessage],
        tools: &[Tool],
    ) -> Result<String, LmError> {
        if let (false, Some(reason)) = (tools.is_empty(), &self.no_tools) {
            return Err(LmError::Template(reason.clone()));
        }
        self.try_render(messages, tools)
            .map_err(|error| LmError::Template(error.to_string()))
    }

    fn try_render(&self, messages: &[ChatMessage], tools: &[Tool]) -> Result<String, Error> {
        let messages: Vec<Json> = messages.iter().map(ChatMessage::to_json).collect();
        let tools: Vec<Json> = tools
            .iter()
            .map(|tool| {
                json!({ "type": "function", "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                } })
            })
            .collect();
        let context = context! {
            messages,
            tools => (!tools.is_empty()).then_some(tools),
            add_generation_prompt => true,
            bos_token => self.beginning,
            eos_token => self.end,
        };
        self.environment.get_template(NAME)?.render(context)
    }
}

/// The date that templates show to the model. It is always the one that Llama 3's falls back to:
/// with a clock, the same conversation would be other tokens tomorrow.
fn today(format: &str) -> String {
    let fields = [
        ("%Y", "2024"),
        ("%y", "24"),
        ("%m", "07"),
        ("%B", "July"),
        ("%b", "Jul"),
        ("%d", "26"),
        ("%A", "Friday"),
        ("%a", "Fri"),
        ("%H", "00"),
        ("%M", "00"),
        ("%S", "00"),
    ];
    fields
        .into_iter()
        .fold(format.to_owned(), |text, (field, value)| {
            text.replace(field, value)
        })
}

/// Without the marks around what the model writes, which only training by text needs.
fn without_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let Some(length) = rest[at..].find("%}") else {
            break;
        };
        let tag = &rest[at..at + length + 2];
        let word = tag.trim_matches(|c: char| "{}%-+ \n\t".contains(c));
        let is_mark = word == "generation" || word == "endgeneration";
        out.push_str(&rest[..if is_mark { at } else { at + tag.len() }]);
        rest = &rest[at + tag.len()..];
    }
    out + rest
}

/// JSON as Python writes it by default, which models were trained on.
#[allow(clippy::needless_pass_by_value, reason = "a filter's form")]
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    let _: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        Some(width) => {
            let spaces = " ".repeat(width.min(16));
            let formatter = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(
                &mut out, formatter,
            ))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(
            &mut out, Python,
        )),
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let text = String::from_utf8(out)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Value::from_safe_string(text))
}

fn separate<W: ?Sized + std::io::Write>(writer: &mut W, first: bool) -> std::io::Result<()> {
    if first {
        Ok(())
    } else {
        writer.write_all(b", ")
    }
}

/// With a space behind commas and colons.
struct Python;

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        separate(writer, first)
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        separate(writer, first)
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHATML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' \
                          + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
                          {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    fn template(source: &str) -> Result<Template, LmError> {
        Template::new(source, "<s>".to_owned(), "</s>".to_owned())
    }

    fn user(content: &str) -> ChatMessage {
        ChatMessage {
            role: "user".to_owned(),
            content: content.to_owned(),
            ..ChatMessage::default()
        }
    }

    #[test]
    fn a_conversation_is_rendered() {
        let rendered = template(CHATML)
            .unwrap()
            .render(&[user("hi")], &[])
            .unwrap();
        assert_eq!(
            rendered,
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        );
    }

    #[test]
    fn a_template_that_can_not_render_is_refused_at_once() {
        for source in [
            "{% for message in messages %}",
            "{{ messages | no_such_filter }}",
            "{{ raise_exception('never') }}",
            "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
            "{% if tools %}{{ tools | no_such_filter }}{% endif %}",
        ] {
            let error = template(source).unwrap_err();
            assert!(matches!(error, LmError::Template(_)), "{source}");
        }
    }

    #[test]
    fn tools_are_written_as_python_writes_json() {
        let tool = Tool {
            name: "add".to_owned(),
            description: "adds <b> & ü".to_owned(),
            parameters: json!({ "type": "object", "required": ["a", "b"] }),
        };
        let source = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}\
                      {%- generation -%}{{ bos_token }}{% endgeneration %}{{ messages[-1].content.strip() }}";
        let rendered = template(source)
            .unwrap()
            .render(&[user(" x ")], &[tool])
            .unwrap();
        assert_eq!(
            rendered,
            "{\"type\": \"function\", \"function\": {\"name\": \"add\", \"description\": \"adds \
             <b> & ü\", \"parameters\": {\"type\": \"object\", \"required\": [\"a\", \"b\"]}}}<s>x"
        );
    }

    #[test]
    fn a_template_that_refuses_tools_says_so_when_asked() {
        let refuses =
            format!("{{% if tools %}}{{{{ raise_exception('no tools') }}}}{{% endif %}}{CHATML}");
        let tool = Tool {
            name: "f".to_owned(),
            description: String::new(),
            parameters: json!({}),
        };
        for source in [CHATML, &refuses] {
            let template = template(source).unwrap();
            assert!(template.render(&[user("x")], &[]).is_ok());
            let error = template
                .render(&[user("x")], std::slice::from_ref(&tool))
                .unwrap_err();
            assert!(error.to_string().contains("tools"), "{error}");
        }
    }

    /// A template and what transformers renders with it; `fixtures/make_templates.py` makes them.
    #[derive(serde::Deserialize)]
    struct Reference {
        template: String,
        messages: Vec<Json>,
        tools: Vec<Json>,
        rendered: String,
    }

    fn message(json: &Json) -> ChatMessage {
        let text = |value: &Json| value.as_str().unwrap().to_owned();
        let calls = json["tool_calls"].as_array().cloned().unwrap_or_default();
        ChatMessage {
            role: text(&json["role"]),
            content: text(&json["content"]),
            tool_calls: calls
                .iter()
                .map(|call| ToolCall {
                    id: text(&call["id"]),
                    name: text(&call["function"]["name"]),
                    arguments: call["function"]["arguments"].to_string(),
                })
                .collect(),
            tool_call_id: json.get("tool_call_id").map(text),
        }
    }

    #[test]
    fn real_templates_render_as_in_transformers() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/templates");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let cases: Vec<Reference> = serde_json::from_str(&read("rendered.json")).unwrap();
        assert!(cases.len() >= 16, "{}", cases.len());
        for case in cases {
            let template = Template::new(
                &read(&case.template),
                "<BOS>".to_owned(),
                "<EOS>".to_owned(),
            )
            .unwrap();
            let messages: Vec<_> = case.messages.iter().map(message).collect();
            let tools = case.tools.iter().map(|tool| {
                let text = |name: &str| tool["function"][name].as_str().unwrap().to_owned();
                Tool {
                    name: text("name"),
                    description: text("description"),
                    parameters: tool["function"]["parameters"].clone(),
                }
            });
            let rendered = template
                .render(&messages, &tools.collect::<Vec<_>>())
                .unwrap();
            assert_eq!(rendered, case.rendered, "{}", case.template);
        }
    }
}
