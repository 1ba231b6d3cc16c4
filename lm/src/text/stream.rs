//! From tokens to text while they come, with stop strings.

use super::Tokenizer;
use crate::LmError;

/// The text of a reply that is being written.
#[derive(Debug)]
pub(crate) struct TextStream {
    stops: Vec<String>,
    /// Tokens whose text may still change with the next.
    pending: Vec<u32>,
    /// The text of some tokens before the pending ones, on which theirs depends.
    context: Vec<u32>,
    text: String,
    /// How much of the text was given out.
    given: usize,
    stopped: bool,
}

/// Tokens that a token's text may depend on.
const CONTEXT: usize = 4;

impl TextStream {
    pub(crate) fn new(stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        let (pending, context) = (Vec::new(), Vec::new());
        Self {
            stops,
            pending,
            context,
            text: String::new(),
            given: 0,
            stopped: false,
        }
    }

    /// Takes a token. True when a stop string was reached: the text then ends before it.
    pub(crate) fn push(&mut self, token: u32, tokenizer: &Tokenizer) -> Result<bool, LmError> {
        self.pending.push(token);
        let all = [self.context.as_slice(), &self.pending].concat();
        let (before, with) = (tokenizer.decode(&self.context)?, tokenizer.decode(&all)?);
        // Half a character shows as a replacement; its rest may follow.
        if with.ends_with('\u{fffd}') && self.pending.len() < CONTEXT {
            return Ok(false);
        }
        self.take(with.strip_prefix(before.as_str()).unwrap_or(&with));
        let kept = all.len().saturating_sub(CONTEXT);
        self.context = all[kept..].to_vec();
        self.pending.clear();
        Ok(self.stopped)
    }

    fn take(&mut self, new: &str) {
        let longest = self.stops.iter().map(String::len).max().unwrap_or_default();
        let mut from = self.text.len().saturating_sub(longest);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        self.text.push_str(new);
        let found = self
            .stops
            .iter()
            .filter_map(|stop| self.text[from..].find(stop))
            .min();
        if let Some(at) = found {
            self.text.truncate(from + at);
            self.stopped = true;
        }
    }

    /// Ends the text: what was held back is final.
    pub(crate) fn finish(&mut self, tokenizer: &Tokenizer) -> Result<(), LmError> {
        if !self.pending.is_empty() && !self.stopped {
            let all = [self.context.as_slice(), &self.pending].concat();
            let (before, with) = (tokenizer.decode(&self.context)?, tokenizer.decode(&all)?);
            self.take(with.strip_prefix(before.as_str()).unwrap_or(&with));
            self.pending.clear();
        }
        Ok(())
    }

    /// The text that was not given out yet and that no stop string can take back.
    pub(crate) fn news(&mut self, finished: bool) -> String {
        let mut end = self.text.len();
        if !finished && !self.stopped {
            let held = self
                .stops
                .iter()
                .map(|stop| overlap(&self.text, stop))
                .max();
            end -= held.unwrap_or_default();
        }
        let news = self
            .text
            .get(self.given..end)
            .unwrap_or_default()
            .to_owned();
        self.given = self.given.max(end);
        news
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// How many bytes at the end of `text` a stop string may begin with.
fn overlap(text: &str, stop: &str) -> usize {
    let begins = |at: &usize| {
        text.is_char_boundary(text.len() - at) && stop.starts_with(&text[text.len() - at..])
    };
    (1..stop.len().min(text.len() + 1))
        .rev()
        .find(begins)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(pieces: &[&str], stops: &[&str]) -> (Vec<String>, bool) {
        let mut stream = TextStream::new(stops.iter().map(|stop| (*stop).to_owned()).collect());
        let mut news = Vec::new();
        for piece in pieces {
            stream.take(piece);
            news.push(stream.news(false));
            if stream.stopped {
                break;
            }
        }
        news.push(stream.news(true));
        (news, stream.stopped)
    }

    #[test]
    fn text_that_may_become_a_stop_string_is_held_back() {
        let (news, stopped) = given(&["ab", "c<", "/x", "y"], &["</stop>"]);
        assert_eq!(news, ["ab", "c", "</x", "y", ""]);
        assert!(!stopped);
        let (news, stopped) = given(&["ab<", "/st", "op>tail"], &["</stop>", "zz"]);
        assert_eq!(news, ["ab", "", "", ""]);
        assert!(stopped);
        let (news, _) = given(&["é", "\u{20ac}uro"], &["\u{20ac}x"]);
        assert_eq!(news.concat(), "é\u{20ac}uro");
        let (news, _) = given(&["ends <"], &["</s>"]);
        assert_eq!(news, ["ends ", "<"]);
    }
}
