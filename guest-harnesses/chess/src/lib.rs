//! A strong harness for chess puzzles, written by hand. A small model can't keep to a notation, but
//! it can continue a pattern: examples show the form, its replies are held to the legal moves, and
//! the move that it writes most often is played. The harness itself never prefers one.

use whale_harness::prelude::*;

const CHOOSE: &str = include_str!("../prompts/choose.txt");
const TURNS: usize = 9;
const VOTES: usize = 8;
const MOVE_TOKENS: u32 = 12;

harness!(run);

fn run(_task: &Task) -> Result<Answer> {
    let mut position = environment::observe()?;
    let mut moves = Vec::new();
    for _ in 0..TURNS {
        let (side, legal) = read(&position)?;
        let names: Vec<&str> = legal.iter().map(|(_, san)| *san).collect();
        let prompt = Template::new(CHOOSE).fill(&[("side", side), ("moves", &names.join(", "))])?;
        let choices = names.iter().map(|san| format!(" {san}")).collect();
        let chat = Chat::raw(prompt)
            .temperature(0.7)
            .max_tokens(MOVE_TOKENS)
            .constraint(Constraint::Choices(choices));
        let mut ballot = Ballot::new();
        for reply in chat.sample(VOTES)?.into_iter().flatten() {
            // A server without constraints may say more than the move.
            let words = || reply.text.split(|c: char| c.is_whitespace() || ",.<>".contains(c));
            if let Some(san) = words().find(|word| names.contains(word)) {
                ballot.add(san);
            }
        }
        let Some(san) = ballot.winner() else {
            return Err(Error::NoAnswer("no reply had a legal move".to_owned()));
        };
        let turn = environment::act(&format!("<move>{san}</move>"))?;
        moves.push(san);
        if turn.done {
            break;
        }
        let (_, seen) = turn.observation.split_once('\n').unwrap_or_default();
        position = seen.to_owned();
    }
    Ok(Answer::new(moves.join(" ")))
}

/// The side to move, and the legal moves in UCI and in SAN.
fn read(position: &str) -> Result<(&str, Vec<(&str, &str)>)> {
    let line = |name: &str| position.lines().find_map(|line| line.strip_prefix(name));
    let side = line("side: ").unwrap_or("White");
    let legal = line("legal: ").unwrap_or_default().split(' ');
    let legal: Vec<(&str, &str)> = legal.filter_map(|both| both.split_once('=')).collect();
    if legal.is_empty() {
        return Err(Error::NoAnswer("there is no legal move".to_owned()));
    }
    Ok((side, legal))
}
