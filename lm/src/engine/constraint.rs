//! Constraints on replies, by grammars over the model's tokens.

use std::sync::{Arc, OnceLock};

use llguidance::{
    Matcher, ParserFactory,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie},
};

use super::Constraint;
use crate::{LmError, Model};

/// The longest constraint, in bytes.
const LONGEST: usize = 256 << 10;

/// Makes matchers; the table of tokens is made with the first.
#[derive(Default)]
pub(super) struct Grammars {
    factory: OnceLock<Result<ParserFactory, String>>,
}

impl Grammars {
    /// What a reply may be at each step.
    pub(super) fn matcher(
        &self,
        constraint: &Constraint,
        model: &Model,
    ) -> Result<Matcher, LmError> {
        let refused = |message: String| LmError::Constraint(message);
        let size = match constraint {
            Constraint::Choices(choices) => choices.iter().map(String::len).sum(),
            Constraint::Regex(regex) => regex.len(),
            Constraint::JsonSchema(schema) => schema.to_string().len(),
        };
        if size > LONGEST {
            return Err(refused(format!(
                "it has {size} bytes; the limit is {LONGEST}"
            )));
        }
        let grammar = match constraint {
            Constraint::Choices(choices) if choices.is_empty() => {
                return Err(refused("there are no choices".to_owned()));
            }
            Constraint::Choices(choices) => {
                let choices: Vec<String> = choices.iter().map(|choice| escape(choice)).collect();
                TopLevelGrammar::from_regex(&format!("({})", choices.join("|")))
            }
            Constraint::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Constraint::JsonSchema(schema) => TopLevelGrammar::from_json_schema(schema.clone()),
        };
        let factory = self
            .factory
            .get_or_init(|| factory(model).map_err(|error| error.to_string()));
        let factory = factory.as_ref().map_err(|error| refused(error.clone()))?;
        let parser = factory.create_parser(grammar);
        let parser = parser.map_err(|error| {
            refused(
                error
                    .to_string()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
        })?;
        Ok(Matcher::new(Ok(parser)))
    }
}

fn factory(model: &Model) -> Result<ParserFactory, Box<dyn std::error::Error + Send + Sync>> {
    let vocabulary = model.decoder.vocabulary();
    let words: Vec<Vec<u8>> = (0..u32::try_from(vocabulary).unwrap_or(u32::MAX))
        .map(|id| match model.tokenizer.bytes(id) {
            Some(bytes) => bytes,
            None => {
                let name = model.tokenizer.written(id).unwrap_or_default();
                [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat()
            }
        })
        .collect();
    let end = model.tokenizer.ends.first().copied().unwrap_or_default();
    let info = TokRxInfo::new(u32::try_from(vocabulary).unwrap_or(u32::MAX), end);
    let environment: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)));
    let mut factory = ParserFactory::new_simple(&environment)?;
    factory.quiet();
    factory.limits_mut().verbose_errors = false;
    Ok(factory)
}

/// A text as a regular expression that matches it alone.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii_punctuation() {
            out.push('\\');
        }
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other => out.push(other),
        }
    }
    out
}
