//! Answers a harness's calls through the ports.

use async_trait::async_trait;
use futures::future::join_all;
use tokio::time::Instant;

use super::{Responder, Response, Spec, Stop, meter::Meter};
use crate::{
    contract::{HostError, Request},
    ports::{CodeLimits, Environment, ModelRequest, PortError, Ports, Tokens},
    sandbox::{HostCall, HostReply},
};

/// A responder that asks the model, the tools and the environment of this host.
pub struct Live<'a> {
    spec: &'a Spec,
    ports: &'a Ports,
    environment: Option<Box<dyn Environment>>,
    meter: Meter,
}

impl<'a> Live<'a> {
    /// A responder for this episode.
    #[must_use]
    pub fn new(spec: &'a Spec, ports: &'a Ports) -> Self {
        Self {
            spec,
            ports,
            environment: None,
            meter: Meter::new(&spec.limits),
        }
    }

    /// Gives the episode an environment to act in.
    #[must_use]
    pub fn with_environment(mut self, environment: Box<dyn Environment>) -> Self {
        self.environment = Some(environment);
        self
    }

    async fn complete(
        &mut self,
        number: usize,
        requests: &[Request],
        deadline: Instant,
    ) -> Result<(HostReply, Vec<Option<Tokens>>), Stop> {
        if let Err(error) = self.meter.batch(requests.len()) {
            let refused = requests.iter().map(|_| Err(error.clone())).collect();
            return Ok((HostReply::Complete(refused), Vec::new()));
        }
        let admitted: Vec<Result<(), HostError>> = requests
            .iter()
            .map(|request| {
                self.meter
                    .check(request)
                    .and_then(|()| self.meter.model_call())
            })
            .collect();
        let running = admitted.iter().filter(|admitted| admitted.is_ok()).count();
        let meter = &self.meter;
        let replies =
            requests
                .iter()
                .zip(admitted)
                .enumerate()
                .map(async |(index, (request, admitted))| {
                    if let Err(refused) = admitted {
                        return Ok(Err(refused));
                    }
                    let max_tokens = meter.reply_tokens(request.sampling.max_tokens, running);
                    let seed = self.spec.call_seed(number, index);
                    let request = ModelRequest {
                        request,
                        max_tokens,
                        seed,
                        deadline,
                    };
                    refusal(self.ports.model.complete(request).await)
                });
        let mut completions = Vec::with_capacity(requests.len());
        let mut tokens = Vec::with_capacity(requests.len());
        for reply in join_all(replies).await {
            let reply = reply?;
            if let Ok(reply) = &reply {
                self.meter.completed(&reply.completion);
            }
            let (completion, traced) = match reply {
                Ok(reply) => (Ok(reply.completion), reply.tokens),
                Err(error) => (Err(error), None),
            };
            completions.push(completion);
            tokens.push(traced);
        }
        if tokens.iter().all(Option::is_none) {
            tokens.clear();
        }
        Ok((HostReply::Complete(completions), tokens))
    }

    async fn answer(&mut self, call: &HostCall, deadline: Instant) -> Result<HostReply, Stop> {
        let model = &self.ports.model;
        Ok(match call {
            HostCall::Complete(_) => unreachable!("`respond` sends completions elsewhere"),
            HostCall::Score {
                prompt,
                continuations,
            } => {
                let admitted = self.meter.batch(continuations.len()).and_then(|()| {
                    continuations
                        .iter()
                        .try_for_each(|_| self.meter.model_call())
                });
                HostReply::Score(match admitted {
                    Ok(()) => refusal(model.score(prompt, continuations, deadline).await)?,
                    Err(error) => Err(error),
                })
            }
            HostCall::CountTokens(text) => {
                HostReply::CountTokens(refusal(model.count_tokens(text))?)
            }
            HostCall::ContextLimit => HostReply::ContextLimit(refusal(model.context_limit())?),
            HostCall::Remaining => HostReply::Remaining(self.meter.left()),
            HostCall::Query { text, k } => {
                HostReply::Query(match self.tool(&self.ports.search, "search") {
                    Ok(search) => refusal(search.query(text, *k, deadline).await)?,
                    Err(error) => Err(error),
                })
            }
            HostCall::Open(id) => HostReply::Open(match self.tool(&self.ports.search, "search") {
                Ok(search) => refusal(search.open(id, deadline).await)?,
                Err(error) => Err(error),
            }),
            HostCall::Execute {
                language,
                source,
                stdin,
            } => {
                let limits = self.meter.limits();
                let bounds = CodeLimits::of(limits, self.spec.guest_seed(), deadline);
                let too_long = source.len().max(stdin.len()) as u64 > limits.code_source;
                let hit = limits.hit("code-source");
                HostReply::Execute(match self.tool(&self.ports.code, "code execution") {
                    Ok(_) if too_long => Err(HostError::Limit(hit)),
                    Ok(code) => refusal(code.execute(language, source, stdin, bounds).await)?,
                    Err(error) => Err(error),
                })
            }
            HostCall::Observe => HostReply::Observe(match self.act() {
                Ok(environment) => refusal(environment.observe().await)?,
                Err(error) => Err(error),
            }),
            HostCall::Act(text) => HostReply::Act(match self.act() {
                Ok(environment) => refusal(environment.act(text).await)?,
                Err(error) => Err(error),
            }),
            HostCall::Note { key, value } => {
                HostReply::Note(self.meter.note(key.len() + value.len()))
            }
        })
    }

    /// A tool, if there is one and a call of it is left.
    fn tool<'p, T: ?Sized>(
        &mut self,
        port: &'p Option<std::sync::Arc<T>>,
        what: &str,
    ) -> Result<&'p T, HostError>
    where
        'a: 'p,
    {
        let port = port.as_deref();
        let port =
            port.ok_or_else(|| HostError::Unavailable(format!("this task has no {what}")))?;
        self.meter.tool_call()?;
        Ok(port)
    }

    fn act(&mut self) -> Result<&mut dyn Environment, HostError> {
        let Some(environment) = &mut self.environment else {
            return Err(HostError::Unavailable(
                "this task has no environment".to_owned(),
            ));
        };
        self.meter.tool_call()?;
        Ok(&mut **environment)
    }
}

#[async_trait]
impl Responder for Live<'_> {
    async fn respond(
        &mut self,
        number: usize,
        call: &HostCall,
        deadline: Instant,
    ) -> Result<Response, Stop> {
        let size = |value: Result<usize, _>| value.map_or(u64::MAX, |size: usize| size as u64);
        if let Err(hit) = self.meter.bytes(size(serialized_size(call))) {
            return Ok(Response {
                reply: refuse(call, HostError::Limit(hit)),
                tokens: Vec::new(),
            });
        }
        let (reply, tokens) = match call {
            HostCall::Complete(requests) => self.complete(number, requests, deadline).await?,
            call => (self.answer(call, deadline).await?, Vec::new()),
        };
        if let Err(hit) = self.meter.bytes(size(serialized_size(&reply))) {
            return Ok(Response {
                reply: refuse(call, HostError::Limit(hit)),
                tokens,
            });
        }
        Ok(Response { reply, tokens })
    }

    fn used(&self) -> Vec<(&'static str, u64)> {
        self.meter.used()
    }

    fn restart(&mut self) {
        self.meter = Meter::new(&self.spec.limits);
        if let Some(environment) = &mut self.environment {
            environment.restart();
        }
    }
}

use postcard::experimental::serialized_size;

/// What a port's error is to the episode: the harness is told, or it ends.
fn refusal<T>(result: Result<T, PortError>) -> Result<Result<T, HostError>, Stop> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(PortError::Invalid(why)) => Ok(Err(HostError::Invalid(why))),
        Err(PortError::Unavailable(what)) => Ok(Err(HostError::Unavailable(what))),
        Err(PortError::Infrastructure(message)) => Err(Stop::Infrastructure(message)),
    }
}

/// The reply that says to any call that a limit forbids it.
fn refuse(call: &HostCall, error: HostError) -> HostReply {
    match call {
        HostCall::Complete(requests) => {
            HostReply::Complete(requests.iter().map(|_| Err(error.clone())).collect())
        }
        HostCall::Score { .. } => HostReply::Score(Err(error)),
        HostCall::CountTokens(_) => HostReply::CountTokens(Err(error)),
        HostCall::ContextLimit => HostReply::ContextLimit(Err(error)),
        HostCall::Remaining => HostReply::Remaining(crate::contract::Budget {
            model_calls: 0,
            tool_calls: 0,
            prompt_tokens: 0,
            completion_tokens: 0,
        }),
        HostCall::Query { .. } => HostReply::Query(Err(error)),
        HostCall::Open(_) => HostReply::Open(Err(error)),
        HostCall::Execute { .. } => HostReply::Execute(Err(error)),
        HostCall::Observe => HostReply::Observe(Err(error)),
        HostCall::Act(_) => HostReply::Act(Err(error)),
        HostCall::Note { .. } => HostReply::Note(Err(error)),
    }
}
