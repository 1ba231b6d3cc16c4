//! A strong harness for chess puzzles, written by hand. A small model can't keep to a notation, but
//! it can say which of some moves is likeliest: it scores all legal moves, and its likeliest is
//! played. The harness itself never prefers one.

use whale_harness::prelude::*;

const CHOOSE: &str = include_str!("../prompts/choose.txt");
const TURNS: usize = 9;

harness!(run);

fn run(_task: &Task) -> Result<Answer> {
    let mut position = environment::observe()?;
    let mut moves = Vec::new();
    for _ in 0..TURNS {
        let (side, legal) = read(&position)?;
        let names: Vec<&str> = legal.iter().map(|(_, san)| *san).collect();
        let prompt =
            Template::new(CHOOSE).fill(&[("side", side), ("moves", &names.join(", "))])?;
        let continuations: Vec<String> = names.iter().map(|san| format!(" {san}\n")).collect();
        let scores = score(&Chat::raw(prompt), &continuations)?;
        let best = scores.iter().zip(&legal).max_by(|a, b| a.0.total_cmp(b.0));
        let Some((_, (uci, _))) = best else { break };
        moves.push((*uci).to_owned());
        let turn = environment::act(&format!("<move>{uci}</move>"))?;
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
