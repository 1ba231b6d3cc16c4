//! Prompts kept as files, with `{{name}}` for what changes.

use crate::{Error, Result};

/// The text of a prompt file with `{{name}}` placeholders.
#[derive(Clone, Copy, Debug)]
pub struct Template<'a> {
    text: &'a str,
}

impl<'a> Template<'a> {
    /// Takes the text of a file, as `include_str!` gives it.
    #[must_use]
    pub const fn new(text: &'a str) -> Self {
        Self { text }
    }

    /// Puts the values in. A value's own braces are left alone, and one newline at the end of the
    /// file, which editors add, is dropped.
    ///
    /// # Errors
    /// [`Error::Placeholder`] for a name that has no value.
    pub fn fill(&self, values: &[(&str, &str)]) -> Result<String> {
        let mut rest = self.text.strip_suffix('\n').unwrap_or(self.text);
        let mut filled = String::with_capacity(rest.len());
        while let Some((before, after)) = rest.split_once("{{") {
            filled.push_str(before);
            let Some((name, after)) = after.split_once("}}") else {
                filled.push_str("{{");
                rest = after;
                continue;
            };
            let name = name.trim();
            let value = values.iter().find(|(key, _)| *key == name);
            filled.push_str(value.ok_or_else(|| Error::Placeholder(name.to_owned()))?.1);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, values: &[(&str, &str)], expected: Result<&str>) {
        let filled = Template::new(text).fill(values);
        assert_eq!(filled, expected.map(str::to_owned));
    }

    #[test]
    fn values_replace_their_names() {
        check(
            "Q: {{question}}\nA:",
            &[("question", "1+1?")],
            Ok("Q: 1+1?\nA:"),
        );
        check("{{ a }}{{b}}\n", &[("a", "x"), ("b", "y")], Ok("xy"));
    }

    #[test]
    fn a_value_is_not_filled_again() {
        check("{{a}}", &[("a", "{{b}}"), ("b", "no")], Ok("{{b}}"));
    }

    #[test]
    fn an_open_brace_alone_is_text() {
        check("f{{x", &[], Ok("f{{x"));
    }

    #[test]
    fn a_missing_value_is_named() {
        check(
            "{{topic}}",
            &[],
            Err(Error::Placeholder("topic".to_owned())),
        );
    }
}
