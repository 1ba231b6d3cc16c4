//! A strong harness for maths, written by hand: several programs for each problem, each repaired
//! with feedback when it fails, and a vote over what they print. What a reply says without a
//! program counts only where no program worked.

mod attempt;

use attempt::{Attempt, Found};
use whale_harness::prelude::*;

const SOLVE: &str = include_str!("../prompts/solve.txt");
/// Programs that are asked for at once.
const SAMPLES: usize = 5;
/// Repairs of one program, while the budget lasts.
const REPAIRS: usize = 2;
const REPLY_TOKENS: u32 = 512;

harness!(run);

fn run(task: &Task) -> Result<Answer> {
    let prompt = Template::new(SOLVE).fill(&[("question", &task.prompt)])?;
    let chat = Chat::new().user(prompt).temperature(0.7).top_p(0.95).max_tokens(REPLY_TOKENS);

    let mut printed = Ballot::new();
    let mut said = Ballot::new();
    for reply in chat.sample(SAMPLES)? {
        let Ok(reply) = reply else { continue };
        let mut attempt = Attempt::new(&chat, reply);
        for repair in 0..=REPAIRS {
            match attempt.look()? {
                Found::Printed(answer) => {
                    printed.add(answer);
                    break;
                }
                Found::Said(answer) => {
                    said.add(answer);
                    break;
                }
                Found::Problem(feedback) => {
                    let may_repair =
                        repair < REPAIRS && budget::affords(1, u64::from(REPLY_TOKENS));
                    if !may_repair {
                        break;
                    }
                    attempt.repair(feedback)?;
                }
            }
        }
    }
    note("votes", format!("{} printed, {} said", printed.votes(), said.votes()))?;
    printed
        .winner()
        .or_else(|| said.winner())
        .map(Answer::new)
        .ok_or_else(|| Error::NoAnswer("no program worked and no reply had a number".to_owned()))
}
