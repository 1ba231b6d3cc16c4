//! The published starting point for maths: no system prompt, two turns, the first code fence is
//! run, the answer stands in `\boxed{}`.

use whale_harness::prelude::*;

const TURNS: usize = 2;

harness!(run);

fn run(task: &Task) -> Result<Answer> {
    let mut chat = Chat::new().user(&*task.prompt);
    for turn in 1..=TURNS {
        let reply = chat.complete()?;
        let program = extract::first_code_block(&reply.text);
        if turn == TURNS || program.is_none() {
            return Ok(Answer::new(extract::boxed(&reply.text).unwrap_or_default()));
        }
        let run = code::python(program.unwrap_or_default())?;
        chat = chat.reply(&reply).user(observation(&run));
    }
    Ok(Answer::new(""))
}

/// What the model sees of its program's run.
fn observation(run: &code::Execution) -> String {
    if run.stderr.is_empty() {
        format!("```output\n{}\n```", run.stdout.trim_end())
    } else {
        format!("```output\n{}\n{}\n```", run.stdout.trim_end(), run.stderr.trim_end())
    }
}
