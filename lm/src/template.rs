//! The chat template that a model's file carries.

use minijinja::{Environment, ErrorKind, context};
use serde::Serialize;

use crate::LmError;

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: &'static str,
    /// Its text.
    pub content: String,
}

/// A chat template that is known to render.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    beginning: String,
    end: String,
}

const NAME: &str = "chat";

impl Template {
    /// Takes a template; one that can't render a conversation is refused now, not at the first call.
    pub(crate) fn new(source: String, beginning: String, end: String) -> Result<Self, LmError> {
        let failed = |error: minijinja::Error| LmError::Template(error.to_string());
        let mut environment = Environment::new();
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        // A template is a file's, and files are not trusted: it may not compute for ever.
        environment.set_fuel(Some(1_000_000));
        environment.add_function("raise_exception", |message: String| {
            Err::<String, _>(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment
            .add_template_owned(NAME, source)
            .map_err(failed)?;
        let template = Self {
            environment,
            beginning,
            end,
        };
        let trial =
            [("user", "a"), ("assistant", "b"), ("user", "c")].map(|(role, content)| ChatMessage {
                role,
                content: content.to_owned(),
            });
        template.render(&trial)?;
        Ok(template)
    }

    /// The conversation as the model reads it, ready for its next turn.
    pub(crate) fn render(&self, messages: &[ChatMessage]) -> Result<String, LmError> {
        let context = context! {
            messages,
            add_generation_prompt => true,
            bos_token => self.beginning,
            eos_token => self.end,
        };
        let rendered = self
            .environment
            .get_template(NAME)
            .and_then(|chat| chat.render(context));
        rendered.map_err(|error| LmError::Template(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHATML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' \
                          + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
                          {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

    #[test]
    fn a_conversation_is_rendered() {
        let template = Template::new(CHATML.to_owned(), String::new(), String::new()).unwrap();
        let messages = [ChatMessage {
            role: "user",
            content: "hi".to_owned(),
        }];
        assert_eq!(
            template.render(&messages).unwrap(),
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
        ] {
            let error = Template::new(source.to_owned(), String::new(), String::new()).unwrap_err();
            assert!(matches!(error, LmError::Template(_)), "{source}");
        }
    }
}
