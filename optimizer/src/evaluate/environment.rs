//! A puzzle as the environment of an episode.

use async_trait::async_trait;
use whale_runtime::{
    contract::Turn,
    ports::{Environment, PortError},
};
use whale_tasks::chess::{Game, Puzzle};

/// Plays a puzzle's other side.
pub(super) struct PuzzleEnvironment {
    start: Game,
    game: Game,
}

impl PuzzleEnvironment {
    pub(super) fn new(puzzle: &Puzzle, paper: bool) -> Self {
        let game = Game::new(puzzle, paper);
        Self {
            start: game.clone(),
            game,
        }
    }
}

#[async_trait]
impl Environment for PuzzleEnvironment {
    async fn observe(&mut self) -> Result<String, PortError> {
        Ok(self.game.observe())
    }

    async fn act(&mut self, text: &str) -> Result<Turn, PortError> {
        let reply = self.game.act(text);
        Ok(Turn {
            observation: reply.text,
            done: reply.done,
        })
    }

    fn restart(&mut self) {
        self.game = self.start.clone();
    }
}
