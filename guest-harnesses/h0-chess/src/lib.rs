//! The published starting point for chess puzzles: side, FEN, board, accepted moves, last reply and
//! legal moves are shown; the reply holds one `<move>uci</move>`; one retry for the form, one for an
//! illegal move, nine turns.

use whale_harness::prelude::*;

const MOVE: &str = include_str!("../prompts/move.txt");
const TURNS: usize = 9;

harness!(run);

fn run(task: &Task) -> Result<Answer> {
    let mut position = environment::observe()?;
    let (mut form_retries, mut illegal_retries) = (1, 1);
    let mut moves = Vec::new();
    let mut complaint = String::new();
    for _ in 0..TURNS {
        let prompt =
            Template::new(MOVE).fill(&[("task", &task.prompt), ("position", &position)])?;
        let reply = Chat::new().user(format!("{prompt}{complaint}")).complete()?;
        // The environment takes the last move in tags, and counts what is none.
        let turn = environment::act(&reply.text)?;
        let (said, seen) = turn.observation.split_once('\n').unwrap_or((&turn.observation, ""));
        let retries = match said.split(':').next() {
            Some("malformed") => &mut form_retries,
            Some("illegal") => &mut illegal_retries,
            _ => {
                moves.extend(extract::tag(&reply.text, "move"));
                if turn.done {
                    break;
                }
                complaint.clear();
                position = seen.to_owned();
                continue;
            }
        };
        if *retries == 0 || turn.done {
            break;
        }
        *retries -= 1;
        complaint = format!("\n\nYour last reply was {said}");
    }
    Ok(Answer::new(moves.join(" ")))
}
