//! `chat`: a quick look at a local model in the terminal.

use std::{
    io::{self, BufRead as _, IsTerminal as _},
    process::ExitCode,
    sync::mpsc,
};

use anyhow::anyhow;
use whale_lm::{ChatMessage, Engine, EngineConfig, Event, Generate, Request, Sampling, Work};

use crate::{
    cli::Chat,
    context::Context,
    failure::{CommandResult, Failure},
    model, printer,
};

pub(crate) fn execute(context: &Context, arguments: &Chat) -> CommandResult {
    let config = EngineConfig {
        sequences: 1,
        ..EngineConfig::default()
    };
    let engine = model::engine(context, &arguments.model, &arguments.local, config)?;
    let mut talk = Vec::new();
    if let Some(system) = &arguments.system {
        talk.push(message("system", system));
    }
    let terminal = io::stdin().is_terminal();
    if terminal {
        printer::error("say something; an empty line or Ctrl-D ends the talk");
    }
    let mut seed = arguments.seed;
    loop {
        if terminal {
            printer::part("> ");
        }
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line).map_err(|error| {
            Failure::user(anyhow::Error::new(error).context("what you say can't be read"))
        })?;
        if read == 0 || line.trim().is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        talk.push(message("user", line.trim()));
        let reply = answer(&engine, &talk, arguments, seed)?;
        talk.push(message("assistant", &reply));
        seed = seed.wrapping_add(1);
    }
}

fn message(role: &str, content: &str) -> ChatMessage {
    ChatMessage {
        role: role.to_owned(),
        content: content.to_owned(),
        ..ChatMessage::default()
    }
}

/// Writes the model's turn while it comes.
fn answer(
    engine: &Engine,
    talk: &[ChatMessage],
    arguments: &Chat,
    seed: u64,
) -> Result<String, Failure> {
    let prompt = engine
        .model()
        .encode_chat(talk, &[])
        .map_err(Failure::user)?;
    let generate = Generate {
        max_tokens: arguments.max_tokens as usize,
        sampling: Sampling {
            temperature: arguments.temperature,
            ..Sampling::default()
        },
        seed,
        ..Generate::default()
    };
    let adapter = arguments.local.adapter_name();
    let request = Request {
        prompt,
        work: Work::Generate(generate),
        adapter,
    };
    let (sender, events) = mpsc::channel();
    let sink = Box::new(move |event| {
        let _ = sender.send(event);
    });
    let _ticket = engine.submit(request, sink).map_err(Failure::user)?;
    for event in events {
        match event {
            Event::Token { text, .. } => printer::part(&text),
            Event::Generated(generated) => {
                printer::line("");
                return Ok(generated.text);
            }
            Event::Failed(error) => return Err(Failure::infrastructure(error)),
            Event::Scored(_) => {}
        }
    }
    Err(Failure::infrastructure(anyhow!("the engine stopped")))
}
