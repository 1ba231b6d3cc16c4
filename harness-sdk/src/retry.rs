//! Ask again, saying what was wrong.

use crate::{Chat, Completion, Error, Result};

/// Why a reply was no use: what to tell the model, or an error that ends the attempts.
#[derive(Clone, Debug)]
pub enum Feedback {
    /// Said to the model before it tries again.
    Say(String),
    /// Ends the attempts.
    Stop(Error),
}

impl Feedback {
    /// Something to say to the model.
    pub fn new(text: impl Into<String>) -> Self {
        Self::Say(text.into())
    }
}

impl From<Error> for Feedback {
    fn from(error: Error) -> Self {
        Self::Stop(error)
    }
}

/// Asks until `accept` takes a reply, `retries` more times at the most. Each time the model sees
/// its own reply and what `accept` said of it.
///
/// # Errors
/// [`Error::NoAnswer`] with the last feedback when no reply was accepted, and whatever a model call
/// or `accept` stopped with.
pub fn retry<T>(
    chat: &Chat,
    retries: usize,
    mut accept: impl FnMut(&Completion) -> Result<T, Feedback>,
) -> Result<T> {
    let mut chat = chat.clone();
    let mut complaint = String::new();
    for _ in 0..=retries {
        let reply = chat.complete()?;
        match accept(&reply) {
            Ok(value) => return Ok(value),
            Err(Feedback::Stop(error)) => return Err(error),
            Err(Feedback::Say(text)) => {
                chat = chat.reply(&reply).user(text.clone());
                complaint = text;
            }
        }
    }
    Err(Error::NoAnswer(complaint))
}
