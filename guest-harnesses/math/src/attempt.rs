//! One line of attempts at a problem: a reply, its program, what came of it, the next reply.

use whale_harness::prelude::*;

const REPAIR: &str = include_str!("../prompts/repair.txt");
const NO_PROGRAM: &str = include_str!("../prompts/no_program.txt");

/// What a reply came to.
pub enum Found {
    /// A program that worked printed this.
    Printed(String),
    /// There is no program, but an answer.
    Said(String),
    /// What to tell the model.
    Problem(String),
}

pub struct Attempt {
    chat: Chat,
    reply: Completion,
}

impl Attempt {
    pub fn new(chat: &Chat, reply: Completion) -> Self {
        Self { chat: chat.clone(), reply }
    }

    /// Runs the reply's program, if it has one.
    pub fn look(&self) -> Result<Found> {
        let Some(program) = extract::code_block(&self.reply.text, "python") else {
            return Ok(match said(&self.reply.text) {
                Some(answer) => Found::Said(answer),
                None => Found::Problem(NO_PROGRAM.to_owned()),
            });
        };
        let run = code::python(program)?;
        if let Some(output) = run.output() {
            return Ok(Found::Printed(last_value(&output)));
        }
        let problem = match run.status {
            code::Status::Ok => "no output",
            code::Status::Timeout => "it did not end in time",
            _ => run.exception(),
        };
        Ok(Found::Problem(Template::new(REPAIR).fill(&[("problem", problem)])?))
    }

    /// Asks for a better reply.
    pub fn repair(&mut self, feedback: String) -> Result<()> {
        self.chat = self.chat.clone().reply(&self.reply).user(feedback);
        self.reply = self.chat.complete()?;
        Ok(())
    }
}

/// The answer of a reply without a program.
fn said(text: &str) -> Option<String> {
    extract::boxed(text).or_else(|| extract::last_number(text))
}

/// The last number that a program printed, or all of its last line: an answer may be no number.
fn last_value(output: &str) -> String {
    let line = output.lines().last().unwrap_or_default().trim();
    extract::last_number(line).unwrap_or_else(|| line.to_owned())
}
