//! The published starting point for maths: no system prompt, two turns, the first code fence is
//! run, the answer stands in `\boxed{}`.

use whale_harness::prelude::*;

const TURNS: usize = 2;

harness!(run);

fn run(task: &Task) -> Result<Answer> {
    let mut chat = Chat::new().user(&*task.prompt);
    for turn in 1..=TURNS {
        let reply = chat.complete()?;
        let Some(block) = extract::code_blocks(&reply.text).next().filter(|_| turn < TURNS) else {
            return Ok(Answer::new(extract::boxed(&reply.text).unwrap_or_default()));
        };
        let run = code::python(block.code)?;
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
