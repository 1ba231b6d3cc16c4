//! Write a harness: the code around a language model that makes it an agent.
//!
//! A harness is one function from a [`Task`] to an [`Answer`]. It is compiled to WebAssembly and
//! runs in a sandbox that gives it model calls, search, a code executor and nothing else: no files,
//! no network, no clock but one that the episode's seed sets. This is a whole one, with a prompt in
//! a file, code execution, retries that tell the model what was wrong, and a vote:
//!
//! ```ignore
//! use whale_harness::prelude::*;
//!
//! const SOLVE: &str = include_str!("../prompts/solve.txt");
//!
//! harness!(run);
//!
//! fn run(task: &Task) -> Result<Answer> {
//!     let prompt = Template::new(SOLVE).fill(&[("question", &task.prompt)])?;
//!     let chat = Chat::new().user(prompt).temperature(0.7).max_tokens(512);
//!
//!     let mut ballot = Ballot::new();
//!     for reply in chat.sample(5)?.into_iter().flatten() {
//!         match extract::boxed(&reply.text) {
//!             Some(answer) => ballot.add(answer),
//!             None => note("no box", &reply.text)?,
//!         }
//!     }
//!     if let Some(answer) = ballot.winner() {
//!         return Ok(Answer::new(answer));
//!     }
//!
//!     let answer = retry(&chat, 2, |reply| {
//!         extract::code_block(&reply.text, "python")
//!             .ok_or_else(|| Feedback::new("Write one ```python block that prints the answer."))
//!             .and_then(|program| {
//!                 let run = code::python(program)?;
//!                 run.output().ok_or_else(|| Feedback::new(format!("It failed:\n{}", run.stderr)))
//!             })
//!     })?;
//!     Ok(Answer::new(answer))
//! }
//! ```
//!
//! Prompts are best kept in files under `prompts/`: a search over prompts alone may change those
//! and nothing else.

#[doc(hidden)]
pub mod bindings;
pub mod budget;
mod chat;
pub mod code;
mod error;
pub mod extract;
mod retry;
pub mod search;
mod template;
mod vote;

pub mod environment {
    //! Tasks with turns: look at the state, act, look again.

    use crate::{Result, bindings::whale::harness::environment as host};

    pub use host::Turn;

    /// What there is to see now.
    pub fn observe() -> Result<String> {
        Ok(host::observe()?)
    }

    /// Takes one turn; [`Turn::done`] says whether it was the last.
    pub fn act(text: &str) -> Result<Turn> {
        Ok(host::act(text)?)
    }
}

pub use bindings::{
    Answer, Field, Task,
    whale::harness::model::{
        Completion, Constraint, FinishReason, Message, Role, Tool, ToolCall, Usage,
    },
    whale::harness::types::{HostError, LimitHit},
};
pub use chat::{Chat, complete, context_limit, count_tokens, cut_tokens, score};
pub use error::{Error, Result};
pub use retry::{Feedback, retry};
pub use template::Template;
pub use vote::Ballot;

pub mod json {
    //! JSON values, as [`serde_json`] has them: `json::from_str`, [`Value`], the [`json!`] macro.

    pub use serde_json::{Map, Value, from_str, json, to_string};
}

pub mod regex {
    //! Small regular expressions, as the `regex-lite` crate has them: no Unicode classes.

    pub use regex_lite::{Captures, Regex};
}

/// Writes a note into the episode's trace. Notes are for people: nothing else reads them.
pub fn note(key: &str, value: impl AsRef<str>) -> Result<()> {
    Ok(bindings::whale::harness::log::note(key, value.as_ref())?)
}

impl Answer {
    /// An answer with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }
}

impl Task {
    /// The named text field of this task, such as `passage`, if it has one.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|field| field.name == name)?;
        Some(&field.value)
    }
}

pub mod prelude {
    //! What nearly every harness needs: `use whale_harness::prelude::*;`.

    pub use crate::{
        Answer, Ballot, Chat, Completion, Constraint, Error, Feedback, Result, Task, Template,
        budget, code, cut_tokens, environment, extract, harness, json, note, regex::Regex, retry,
        score, search,
    };
}

/// Makes a function `fn(&Task) -> Result<Answer>` the entry point of this harness.
#[macro_export]
macro_rules! harness {
    ($run:path) => {
        struct Harness;

        impl $crate::bindings::Guest for Harness {
            fn run(
                task: $crate::Task,
            ) -> ::core::result::Result<$crate::Answer, ::std::string::String> {
                let answer: $crate::Result<$crate::Answer> = $run(&task);
                answer.map_err(|error| ::std::string::ToString::to_string(&error))
            }
        }

        $crate::bindings::export!(Harness with_types_in $crate::bindings);
    };
}
