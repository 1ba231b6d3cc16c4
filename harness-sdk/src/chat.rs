//! Model calls: a conversation or a raw prompt, with its sampling settings.

use crate::{
    Completion, Constraint, Error, HostError, Message, Result, Role, Tool,
    bindings::whale::harness::model::{self, Prompt, Request, Sampling},
};

/// A request to the model that is built step by step and can be sent many times.
///
/// Settings that are not given are the host's. There is no seed to set: the host derives it from
/// the item, the rollout and the number of the call.
#[derive(Clone, Debug)]
pub struct Chat {
    request: Request,
}

impl Default for Chat {
    fn default() -> Self {
        Self::new()
    }
}

impl Chat {
    /// An empty conversation.
    #[must_use]
    pub fn new() -> Self {
        Self::with_prompt(Prompt::Chat(Vec::new()))
    }

    /// Text that the model continues as it is, without a chat template: few-shot prompts.
    pub fn raw(text: impl Into<String>) -> Self {
        Self::with_prompt(Prompt::Raw(text.into()))
    }

    fn with_prompt(prompt: Prompt) -> Self {
        let sampling = Sampling {
            temperature: None,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: None,
            max_tokens: None,
        };
        let request = Request {
            prompt,
            tools: Vec::new(),
            sampling,
            stop: Vec::new(),
            constraint: None,
        };
        Self { request }
    }

    /// Adds a system message.
    #[must_use]
    pub fn system(self, content: impl Into<String>) -> Self {
        self.message(Role::System, content)
    }

    /// Adds a user's message.
    #[must_use]
    pub fn user(self, content: impl Into<String>) -> Self {
        self.message(Role::User, content)
    }

    /// Adds an assistant's message: an example, or a reply that the conversation goes on from.
    #[must_use]
    pub fn assistant(self, content: impl Into<String>) -> Self {
        self.message(Role::Assistant, content)
    }

    /// Adds the model's own turn, its tool calls included.
    #[must_use]
    pub fn reply(self, completion: &Completion) -> Self {
        self.push(Message {
            role: Role::Assistant,
            content: completion.text.clone(),
            tool_calls: completion.tool_calls.clone(),
            tool_call_id: None,
        })
    }

    /// Adds the result of the tool call with this id.
    #[must_use]
    pub fn tool_result(self, id: impl Into<String>, content: impl Into<String>) -> Self {
        self.push(Message {
            role: Role::Tool,
            content: content.into(),
            tool_calls: Vec::new(),
            tool_call_id: Some(id.into()),
        })
    }

    fn message(self, role: Role, content: impl Into<String>) -> Self {
        let content = content.into();
        self.push(Message {
            role,
            content,
            tool_calls: Vec::new(),
            tool_call_id: None,
        })
    }

    /// Adds a message; a raw prompt takes its text at the end.
    fn push(mut self, message: Message) -> Self {
        match &mut self.request.prompt {
            Prompt::Chat(messages) => messages.push(message),
            Prompt::Raw(text) => text.push_str(&message.content),
        }
        self
    }

    /// Offers a tool to the model.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.request.tools.push(tool);
        self
    }

    /// 0 takes the likeliest token each time.
    #[must_use]
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.request.sampling.temperature = Some(temperature);
        self
    }

    /// Samples from the `k` likeliest tokens.
    #[must_use]
    pub fn top_k(mut self, k: u32) -> Self {
        self.request.sampling.top_k = Some(k);
        self
    }

    /// Samples from the likeliest tokens that hold this share of the probability.
    #[must_use]
    pub fn top_p(mut self, p: f32) -> Self {
        self.request.sampling.top_p = Some(p);
        self
    }

    /// The longest reply, in tokens.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.request.sampling.max_tokens = Some(tokens);
        self
    }

    /// Ends the reply before this text.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.request.stop.push(text.into());
        self
    }

    /// Makes the reply have a form.
    #[must_use]
    pub fn constraint(mut self, constraint: Constraint) -> Self {
        self.request.constraint = Some(constraint);
        self
    }

    /// One reply.
    ///
    /// # Errors
    /// What the host says: a limit, a request that makes no sense, a model that is not there.
    pub fn complete(&self) -> Result<Completion> {
        let mut replies = complete(std::slice::from_ref(self));
        replies
            .pop()
            .unwrap_or_else(|| Err(Error::other("the host gave no reply")))
    }

    /// `n` replies at once, each with a seed of its own.
    ///
    /// # Errors
    /// If not one of them came, the first one's error; else each has its own.
    pub fn sample(&self, n: usize) -> Result<Vec<Result<Completion>>> {
        let replies = complete(&vec![self.clone(); n]);
        match replies.iter().find_map(|reply| reply.as_ref().err()) {
            Some(error) if replies.iter().all(Result::is_err) => Err(error.clone()),
            _ => Ok(replies),
        }
    }
}

/// Sends several requests at once; the results come in their order.
#[must_use]
pub fn complete(chats: &[Chat]) -> Vec<Result<Completion>> {
    let requests: Vec<Request> = chats.iter().map(|chat| chat.request.clone()).collect();
    model::complete(&requests)
        .into_iter()
        .map(|reply| reply.map_err(Error::from))
        .collect()
}

/// The natural logarithm of each continuation's likelihood after the conversation or raw prompt.
///
/// # Errors
/// `unavailable` where the model's server cannot score.
pub fn score(chat: &Chat, continuations: &[String]) -> Result<Vec<f64>> {
    Ok(model::score(&chat.request.prompt, continuations)?)
}

/// How many tokens the model's tokenizer makes of this text.
///
/// # Errors
/// `unavailable` where the model's server does not tell.
pub fn count_tokens(text: &str) -> Result<u32> {
    Ok(model::count_tokens(text)?)
}

/// The beginning of a text, whole words, within so many tokens. Where the model's server does not
/// tell how it counts, four characters stand for a token.
///
/// # Errors
/// When a limit of the episode is used up.
pub fn cut_tokens(text: &str, tokens: u32) -> Result<String> {
    let fits = |text: &str| match count_tokens(text) {
        Ok(count) => Ok(count <= tokens),
        Err(Error::Host(HostError::Unavailable(_))) => Ok(text.len() / 4 <= tokens as usize),
        Err(error) => Err(error),
    };
    if fits(text)? {
        return Ok(text.to_owned());
    }
    let ends: Vec<usize> = text
        .match_indices(char::is_whitespace)
        .map(|(at, _)| at)
        .collect();
    let (mut low, mut high) = (0, ends.len());
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(&text[..ends[middle - 1]])? {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let end = if low == 0 { 0 } else { ends[low - 1] };
    Ok(text[..end].trim_end().to_owned())
}

/// The longest prompt and reply together, in tokens.
///
/// # Errors
/// `unavailable` where the model's server does not tell.
pub fn context_limit() -> Result<u32> {
    Ok(model::context_limit()?)
}
