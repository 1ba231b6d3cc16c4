//! Chess puzzles: the environment plays the opponent, and the line of moves is the verifier.

mod game;
mod puzzle;
#[cfg(test)]
mod tests;

pub use game::{Game, Played, Reply, TURNS};
pub use puzzle::{Puzzle, PuzzleError};

use crate::grade::Verdict;

/// What a harness did in a puzzle: a text that it gave to the environment, and all that the model
/// had written in the episode until then.
#[derive(Clone, Copy, Debug)]
pub struct Act<'a> {
    /// What the environment was given.
    pub text: &'a str,
    /// What the model wrote, or scored highest, before.
    pub written: &'a str,
}

/// Plays an episode again and says how it went. A move that stands in nothing that the model wrote
/// is the harness's own and ends the puzzle as wrong.
#[must_use]
pub fn grade(puzzle: &Puzzle, acts: &[Act<'_>], paper: bool) -> (Verdict, Played) {
    let mut game = Game::new(puzzle, paper);
    let mut authored = None;
    for act in acts {
        if let Some(spellings) = game.spellings(act.text)
            && !spellings.iter().any(|move_| is_word_in(act.written, move_))
        {
            authored = Some(spellings[0].clone());
            break;
        }
        game.act(act.text);
    }
    let mut played = game.played();
    let moves = game.moves();
    if let Some(move_) = authored {
        played.solved = false;
        played.authored = true;
        let why = format!("`{move_}` stands in nothing that the model wrote");
        return (verdict(&played, &moves, why), played);
    }
    let why = if played.solved {
        "every move was right".to_owned()
    } else if let Some(wrong) = &played.wrong {
        format!("`{wrong}` is legal and wrong")
    } else {
        format!("it ended after {} right moves", played.right)
    };
    (verdict(&played, &moves, why), played)
}

fn verdict(played: &Played, moves: &str, why: String) -> Verdict {
    Verdict {
        score: f64::from(u8::from(played.solved)),
        formed: played.right > 0 || played.wrong.is_some(),
        graded: moves.to_owned(),
        why,
    }
}

/// Whether a move stands in a text by itself: `e6e7` is not in `e6e7q`.
fn is_word_in(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric();
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}
