//! A puzzle being played.

use std::fmt::Write as _;

use cozy_chess::{Board, Color, File, GameStatus, Move, Piece, Rank, Square, util};

use super::Puzzle;

/// Turns of one episode, retries included.
pub const TURNS: usize = 18;
/// Retries for a reply without a move, and as many for illegal moves.
const RETRIES: usize = 10;

/// A puzzle being played. The rules are the published ones: a reply without a move and an illegal
/// move may be tried again; a legal move that is not the line's ends the puzzle; a right one is
/// answered by the line's reply.
#[derive(Clone, Debug)]
pub struct Game {
    puzzle: Puzzle,
    paper: bool,
    board: Board,
    /// Moves of the line that were played, the opponent's included.
    at: usize,
    turns: usize,
    /// The moves that were accepted, in UCI.
    accepted: Vec<String>,
    /// The opponent's last move, in UCI and in SAN.
    reply: (String, String),
    played: Played,
    done: bool,
}

/// How a puzzle went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Whether every move was right.
    pub solved: bool,
    /// Right moves of the solver.
    pub right: usize,
    /// Replies without a move.
    pub malformed: usize,
    /// Moves that are not legal.
    pub illegal: usize,
    /// The legal move that was not the line's.
    pub wrong: Option<String>,
    /// A move was the harness's own.
    pub authored: bool,
}

/// What the environment says to a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What there is to see.
    pub text: String,
    /// Whether this was the last turn.
    pub done: bool,
}

impl Game {
    /// A new game; the opponent's first move is played. With `paper`, a checkmate that is not the
    /// line's is wrong.
    #[must_use]
    pub fn new(puzzle: &Puzzle, paper: bool) -> Self {
        let mut game = Self {
            board: puzzle.start.clone(),
            puzzle: puzzle.clone(),
            paper,
            at: 0,
            turns: 0,
            accepted: Vec::new(),
            reply: (String::new(), String::new()),
            played: Played::default(),
            done: false,
        };
        game.opponent();
        game
    }

    /// Plays the line's next move for the opponent.
    fn opponent(&mut self) {
        let move_ = self.puzzle.line[self.at];
        self.reply = (uci(&self.board, move_), san(&self.board, move_));
        self.board.play(move_);
        self.at += 1;
    }

    /// What there is to see: one thing a line, by name.
    #[must_use]
    pub fn observe(&self) -> String {
        let side = match self.board.side_to_move() {
            Color::White => "White",
            Color::Black => "Black",
        };
        let mut text = format!("side: {side}\nfen: {}\nboard:\n", self.board);
        text.push_str(&drawing(&self.board));
        let accepted = if self.accepted.is_empty() {
            "none".to_owned()
        } else {
            self.accepted.join(" ")
        };
        let (uci, san) = &self.reply;
        let _ = write!(text, "accepted: {accepted}\nreply: {uci} {san}\nlegal:");
        for (uci, san) in self.legal() {
            let _ = write!(text, " {uci}={san}");
        }
        text
    }

    /// All legal moves, in UCI and in SAN.
    fn legal(&self) -> Vec<(String, String)> {
        let mut moves = Vec::new();
        self.board.generate_moves(|of_piece| {
            for move_ in of_piece {
                moves.push((uci(&self.board, move_), san(&self.board, move_)));
            }
            false
        });
        moves.sort();
        moves
    }

    /// Takes a turn: the move in the last `<move></move>`, or the whole text as a move, in UCI or
    /// SAN.
    pub fn act(&mut self, text: &str) -> Reply {
        if self.done {
            return self.say("the puzzle is over".to_owned());
        }
        self.turns += 1;
        let Some(written) = written_move(text) else {
            self.played.malformed += 1;
            self.done = self.played.malformed > RETRIES || self.turns >= TURNS;
            return self.say("malformed: write one move as <move>e2e4</move>".to_owned());
        };
        let Some(move_) = self.parse(written) else {
            self.played.illegal += 1;
            self.done = self.played.illegal > RETRIES || self.turns >= TURNS;
            return self.say(format!("illegal: `{written}` is not a legal move here"));
        };
        let mut after = self.board.clone();
        after.play(move_);
        let mates = after.status() == GameStatus::Won && !self.paper;
        let written = uci(&self.board, move_);
        if move_ != self.puzzle.line[self.at] && !mates {
            self.played.wrong = Some(written);
            self.done = true;
            return self.say("wrong: the puzzle is over".to_owned());
        }
        self.played.right += 1;
        self.accepted.push(written);
        self.board = after;
        self.at += 1;
        if mates || self.at == self.puzzle.line.len() {
            self.played.solved = true;
            self.done = true;
            return self.say("solved".to_owned());
        }
        self.opponent();
        self.done = self.turns >= TURNS;
        self.say(format!("right\n{}", self.observe()))
    }

    fn say(&self, text: String) -> Reply {
        Reply {
            text,
            done: self.done,
        }
    }

    fn parse(&self, text: &str) -> Option<Move> {
        let move_ = util::parse_uci_move(&self.board, &text.to_lowercase())
            .or_else(|_| util::parse_san_move(&self.board, text))
            .ok()?;
        self.board.is_legal(move_).then_some(move_)
    }

    /// How the move of a text is written, in UCI and in SAN, where it is legal now.
    #[must_use]
    pub(super) fn spellings(&self, text: &str) -> Option<[String; 2]> {
        if self.done {
            return None;
        }
        let move_ = self.parse(written_move(text)?)?;
        let san = san(&self.board, move_);
        Some([
            uci(&self.board, move_),
            san.trim_end_matches(['+', '#']).to_owned(),
        ])
    }

    /// How it went so far.
    #[must_use]
    pub fn played(&self) -> Played {
        self.played.clone()
    }

    /// The moves that were made, the wrong one included.
    pub(super) fn moves(&self) -> String {
        let wrong = self.played.wrong.iter();
        let all: Vec<&str> = self
            .accepted
            .iter()
            .chain(wrong)
            .map(String::as_str)
            .collect();
        all.join(" ")
    }
}

/// The move that a text gives, as it is written.
fn written_move(text: &str) -> Option<&str> {
    let inside = match text.rsplit_once("<move>") {
        Some((_, after)) => after.split_once("</move>")?.0,
        None => text,
    };
    let inside = inside.trim();
    let is_move = (2..=10).contains(&inside.len())
        && inside
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-=+#".contains(c));
    is_move.then_some(inside)
}

fn uci(board: &Board, move_: Move) -> String {
    util::display_uci_move(board, move_).to_string()
}

fn san(board: &Board, move_: Move) -> String {
    util::display_san_move(board, move_).to_string()
}

/// The board as text, White below.
fn drawing(board: &Board) -> String {
    let mut text = String::new();
    for rank in Rank::ALL.into_iter().rev() {
        let _ = write!(text, "{rank}");
        for file in File::ALL {
            let square = Square::new(file, rank);
            let sign = board.piece_on(square).map_or('.', |piece| {
                let sign = letter(piece);
                if board.color_on(square) == Some(Color::White) {
                    sign.to_ascii_uppercase()
                } else {
                    sign
                }
            });
            let _ = write!(text, " {sign}");
        }
        text.push('\n');
    }
    text + "  a b c d e f g h\n"
}

fn letter(piece: Piece) -> char {
    match piece {
        Piece::Pawn => 'p',
        Piece::Knight => 'n',
        Piece::Bishop => 'b',
        Piece::Rook => 'r',
        Piece::Queen => 'q',
        Piece::King => 'k',
    }
}
