//! Between texts and token ids.

mod stream;
mod template;
mod tokenizer;
mod tool_calls;
mod vocabulary;

pub(crate) use self::{stream::TextStream, template::Template, tokenizer::Tokenizer};
pub use self::{
    template::{ChatMessage, Tool},
    tool_calls::{ToolCall, parse as parse_tool_calls},
};
