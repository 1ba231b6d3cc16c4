//! Asks several times for a Python program that solves the problem, runs each, and takes the answer
//! that most of them print. Without a program that works, the number in the reply counts.

use whale_harness::prelude::*;

const SOLVE: &str = include_str!("../prompts/solve.txt");
const SAMPLES: usize = 5;

harness!(run);

fn run(task: &Task) -> Result<Answer> {
    let prompt = Template::new(SOLVE).fill(&[("question", &task.prompt)])?;
    let chat = Chat::new().user(prompt).temperature(0.7).max_tokens(400);

    let mut programs = Ballot::new();
    let mut replies = Ballot::new();
    for reply in chat.sample(SAMPLES)?.into_iter().flatten() {
        if let Some(program) = extract::code_block(&reply.text, "python") {
            let run = code::python(program)?;
            match run.output() {
                Some(output) => programs.add(extract::last_number(&output).unwrap_or(output)),
                None => note("failed program", run.exception())?,
            }
        } else if let Some(number) =
            extract::boxed(&reply.text).or_else(|| extract::last_number(&reply.text))
        {
            replies.add(number);
        }
    }
    programs
        .winner()
        .or_else(|| replies.winner())
        .map(Answer::new)
        .ok_or_else(|| Error::other("no reply had a number or a program that works"))
}
