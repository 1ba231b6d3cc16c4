//! Find the answer in what a model wrote. Every function takes the last match: models correct
//! themselves.

/// What stands in the last `\boxed{…}`, with balanced braces.
///
/// An unterminated or empty last box is `None`, even if an earlier one was well formed.
#[must_use]
pub fn boxed(text: &str) -> Option<String> {
    let start = ["\\boxed{", "\\fbox{"]
        .iter()
        .filter_map(|command| Some(text.rfind(command)? + command.len()))
        .max()?;
    let mut depth = 1_usize;
    for (at, character) in text[start..].char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return non_empty(&text[start..start + at]);
        }
    }
    None
}

/// What stands between the last `<name>` and its `</name>`.
#[must_use]
pub fn tag(text: &str, name: &str) -> Option<String> {
    let open = format!("<{name}>");
    let inner = &text[text.rfind(&open)? + open.len()..];
    non_empty(&inner[..inner.find(&format!("</{name}>"))?])
}

/// What follows the last `marker` on its line, such as `####` or `Answer:`.
#[must_use]
pub fn after(text: &str, marker: &str) -> Option<String> {
    let rest = &text[text.rfind(marker)? + marker.len()..];
    non_empty(rest.lines().next().unwrap_or_default())
}

/// The last number, without thousands separators: `1,234.5` is `1234.5`.
#[must_use]
pub fn last_number(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let last_digit = bytes.iter().rposition(u8::is_ascii_digit)?;
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut start = last_digit;
    while start > 0
        && (digit(start - 1)
            || (matches!(bytes[start - 1], b'.' | b',') && start > 1 && digit(start - 2)))
    {
        start -= 1;
    }
    let negative = start > 0
        && bytes[start - 1] == b'-'
        && !(start > 1 && bytes[start - 2].is_ascii_alphanumeric());
    let number = text[start..=last_digit].replace(',', "");
    Some(if negative {
        format!("-{number}")
    } else {
        number
    })
}

/// The text of the last fenced block that names this language, or of the last that names none.
#[must_use]
pub fn code_block<'a>(text: &'a str, language: &str) -> Option<&'a str> {
    let blocks = || code_blocks(text).filter(|block| !block.code.trim().is_empty());
    let named = blocks()
        .filter(|block| block.language.eq_ignore_ascii_case(language))
        .last();
    let plain = || blocks().filter(|block| block.language.is_empty()).last();
    named.or_else(plain).map(|block| block.code)
}

/// A fenced block of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeBlock<'a> {
    /// What stands behind the opening fence.
    pub language: &'a str,
    /// What stands between the fences.
    pub code: &'a str,
}

/// All fenced blocks that are closed, in their order.
pub fn code_blocks(text: &str) -> impl Iterator<Item = CodeBlock<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once("```")?;
        let (language, body) = after.split_once('\n')?;
        let (code, after) = body.split_once("```")?;
        rest = after;
        Some(CodeBlock {
            language: language.trim(),
            code,
        })
    })
}

fn non_empty(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(found: impl Into<Option<String>>, expected: Option<&str>) {
        assert_eq!(found.into().as_deref(), expected);
    }

    #[test]
    fn the_last_box_counts() {
        check(
            boxed(r"so \boxed{3}, no, \boxed{\frac{1}{2}}."),
            Some(r"\frac{1}{2}"),
        );
        check(boxed(r"\boxed{3} and \boxed{"), None);
        check(boxed(r"\boxed{3} and \boxed{ }"), None);
        check(boxed("none"), None);
    }

    #[test]
    fn tags_and_markers() {
        check(
            tag("<answer>a</answer> <answer> b </answer>", "answer"),
            Some("b"),
        );
        check(tag("<answer>a</answer> <answer>b", "answer"), None);
        check(after("#### 3\n#### 42 \nbye", "####"), Some("42"));
    }

    #[test]
    fn numbers_lose_their_separators() {
        check(
            last_number("first 3, then 1,234.50 dollars."),
            Some("1234.50"),
        );
        check(last_number("x = -7."), Some("-7"));
        check(last_number("10-7"), Some("7"));
        check(last_number("none"), None);
    }

    fn code(text: &str) -> Option<String> {
        code_block(text, "python").map(str::to_owned)
    }

    #[test]
    fn the_named_block_is_preferred() {
        let text = "```python\na\n```\n```python\nb\n```\n```\nc\n```";
        check(code(text), Some("b\n"));
        check(code("```\nc\n```"), Some("c\n"));
        check(code("```js\nc\n```"), None);
        check(code("```python\nunfinished"), None);
    }

    proptest! {
        #[test]
        fn nothing_that_a_model_writes_panics(text in "[\\PC\n`{}<>,.0-9-]*") {
            let _ = (boxed(&text), tag(&text, "answer"), after(&text, "####"));
            let _ = (last_number(&text), code_block(&text, "python"));
        }
    }
}
