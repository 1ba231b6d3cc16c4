//! Puzzles being played, and the rules against what is known of chess.

use cozy_chess::Board;

use super::*;

fn puzzle() -> Puzzle {
    Puzzle::new(
        "8/4R3/1p2P3/p4r2/P6p/1P3Pk1/4K3/8 w - - 1 64",
        "e7f7 f5e5 e2f1 e5e6",
    )
    .unwrap()
}

#[track_caller]
fn check(game: &mut Game, text: &str, says: &str, done: bool) {
    let reply = game.act(text);
    assert!(reply.text.starts_with(says), "{}", reply.text);
    assert_eq!(reply.done, done, "{}", reply.text);
}

#[test]
fn the_line_is_played_out() {
    let puzzle = puzzle();
    let mut game = Game::new(&puzzle, false);
    let seen = game.observe();
    assert!(seen.starts_with("side: Black\nfen: 8/5R2/"), "{seen}");
    assert!(seen.contains("reply: e7f7 Rf7"), "{seen}");
    assert!(seen.contains(" f5e5=Re5+"), "{seen}");
    check(
        &mut game,
        "<move>a1a1</move><move> f5e5 </move>",
        "right\nside: Black",
        false,
    );
    check(&mut game, "Rxe6", "solved", true);
    check(&mut game, "Rxe6", "the puzzle is over", true);
    assert_eq!(
        game.played(),
        Played {
            solved: true,
            right: 2,
            ..Played::default()
        }
    );
}

#[test]
fn retries_are_bounded_and_a_wrong_move_ends_it() {
    let puzzle = puzzle();
    let mut game = Game::new(&puzzle, false);
    check(&mut game, "I think so", "malformed", false);
    check(&mut game, "<move>f5e5", "malformed", false);
    check(&mut game, "<move>f5a1</move>", "illegal", false);
    check(&mut game, "g3g2", "wrong", true);
    let played = game.played();
    assert_eq!((played.malformed, played.illegal), (2, 1));
    assert_eq!(played.wrong.as_deref(), Some("g3g2"));

    let mut game = Game::new(&puzzle, false);
    for _ in 0..10 {
        check(&mut game, "f5a1", "illegal", false);
    }
    check(&mut game, "f5a1", "illegal", true);
}

#[test]
fn any_checkmate_solves_but_for_the_published_rule() {
    // Behind its pawns, the king is mated on the eighth rank by either rook.
    let mates = Puzzle::new("6k1/p4ppp/8/8/8/8/R7/K3R3 b - - 0 1", "a7a6 e1e8").unwrap();
    let after = |paper: bool, text: &str| {
        let mut game = Game::new(&mates, paper);
        game.act(text).text
    };
    assert_eq!(after(true, "e1e8"), "solved");
    assert_eq!(after(false, "Re8#"), "solved");
    let two = Puzzle::new("6k1/p4ppp/8/8/8/8/3R4/K3R3 b - - 0 1", "a7a6 e1e8").unwrap();
    let mut lenient = Game::new(&two, false);
    check(&mut lenient, "d2d8", "solved", true);
    let mut strict = Game::new(&two, true);
    check(&mut strict, "d2d8", "wrong", true);
}

#[test]
fn promotion_and_castling_are_moves() {
    let promotes = Puzzle::new("k7/7P/8/8/8/8/8/K7 b - - 0 1", "a8b7 h7h8q").unwrap();
    let mut game = Game::new(&promotes, true);
    check(&mut game, "<move>h7h8</move>", "illegal", false);
    check(&mut game, "<move>h8=Q</move>", "solved", true);
    let castles = Puzzle::new("4k3/8/8/8/8/8/8/4K2R b K - 0 1", "e8d8 e1g1").unwrap();
    let mut game = Game::new(&castles, true);
    assert!(game.observe().contains(" e1g1=O-O"), "{}", game.observe());
    check(&mut game, "O-O", "solved", true);
}

#[test]
fn a_harness_may_not_move_by_itself() {
    let puzzle = puzzle();
    let graded = |written: &str| {
        let act = |text| Act { text, written };
        grade(&puzzle, &[act("f5e5"), act("e5e6")], false)
    };
    let (verdict, played) = graded("<move>f5e5</move> then Rxe6");
    assert!(verdict.is_right() && !played.authored, "{verdict:?}");
    let (verdict, played) = graded("<move>f5e5</move>");
    assert!(!verdict.is_right() && played.authored);
    assert_eq!(verdict.why, "`e5e6` stands in nothing that the model wrote");
    // Within a longer word, a move is not written.
    assert!(graded("f5e5q e5e6").1.authored);
}

#[test]
fn what_is_no_puzzle_is_refused() {
    let legal = "8/4R3/1p2P3/p4r2/P6p/1P3Pk1/4K3/8 w - - 1 64";
    for (fen, moves) in [
        ("8/8/8/8/8/8/8/8 w - - 0 1", "e2e4 e7e5"),
        ("not a position", "e2e4 e7e5"),
        (legal, ""),
        (legal, "e7f7"),
        (legal, "e7a1 f5e5"),
        (legal, "e7f7 f5e5 e2f1 nonsense"),
    ] {
        assert!(Puzzle::new(fen, moves).is_err(), "{fen} {moves}");
    }
}

fn perft(board: &Board, depth: u32) -> u64 {
    let mut nodes = 0;
    board.generate_moves(|moves| {
        if depth == 1 {
            nodes += moves.len() as u64;
        } else {
            for move_ in moves {
                let mut next = board.clone();
                next.play_unchecked(move_);
                nodes += perft(&next, depth - 1);
            }
        }
        false
    });
    nodes
}

/// The six positions that engines are checked with, and the leaves at depth 4.
#[test]
fn the_rules_are_those_of_chess() {
    for (fen, nodes) in [
        (
            "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
            197_281,
        ),
        (
            "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
            4_085_603,
        ),
        ("8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1", 43_238),
        (
            "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1",
            422_333,
        ),
        (
            "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8",
            2_103_487,
        ),
        (
            "r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10",
            3_894_594,
        ),
    ] {
        assert_eq!(perft(&fen.parse().unwrap(), 4), nodes, "{fen}");
    }
}
