//! A puzzle as the Lichess database has it.

use cozy_chess::{Board, Move, util};
use thiserror::Error;

/// More moves than any puzzle has.
const LONGEST: usize = 200;

/// A position and the line that solves it. The first move is the opponent's.
#[derive(Clone, Debug)]
pub struct Puzzle {
    pub(super) start: Board,
    pub(super) line: Vec<Move>,
}

/// Why something is no puzzle.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PuzzleError {
    /// The position can't be read or can't be.
    #[error("`{fen}` is no legal position in FEN")]
    Position {
        /// What was given.
        fen: String,
    },
    /// A move can't be read or can't be made.
    #[error("move {number} of the line, `{text}`, is not legal there")]
    Move {
        /// Counted from 1.
        number: usize,
        /// What was given.
        text: String,
    },
    /// The line ends with the opponent's move, or is far too long.
    #[error("a line has an even number of moves, at most {LONGEST}: this has {found}")]
    Length {
        /// How many it has.
        found: usize,
    },
}

impl Puzzle {
    /// Reads a position and the moves from it, in UCI, with spaces between them.
    ///
    /// # Errors
    /// When the position or a move is not legal, or the line does not end with the solver's move.
    pub fn new(fen: &str, moves: &str) -> Result<Self, PuzzleError> {
        let start: Board = fen.parse().map_err(|_| PuzzleError::Position {
            fen: fen.to_owned(),
        })?;
        let texts: Vec<&str> = moves.split_whitespace().collect();
        if texts.is_empty() || texts.len() % 2 == 1 || texts.len() > LONGEST {
            return Err(PuzzleError::Length { found: texts.len() });
        }
        let mut board = start.clone();
        let mut line = Vec::with_capacity(texts.len());
        for (index, text) in texts.into_iter().enumerate() {
            let illegal = || PuzzleError::Move {
                number: index + 1,
                text: text.to_owned(),
            };
            let move_ = util::parse_uci_move(&board, text).map_err(|_| illegal())?;
            board.try_play(move_).map_err(|_| illegal())?;
            line.push(move_);
        }
        Ok(Self { start, line })
    }

    /// How many moves the solver has to find.
    #[must_use]
    pub fn solver_moves(&self) -> usize {
        self.line.len() / 2
    }
}
