//! One episode: a task goes in, a record comes out. Search, training and evaluation all run through
//! [`run`], and a recorded episode runs through it again without a model.

mod driver;
mod live;
mod meter;
mod record;
mod replay;
mod spec;

pub use driver::{Measured, measure, run};
pub use live::Live;
pub use record::{Call, FORMAT, HarnessId, Outcome, Record, RecordError, Times};
pub use replay::{Difference, replay};
pub use spec::Spec;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::{
    ports::Tokens,
    sandbox::{HostCall, HostReply},
};

/// Whoever answers a harness's calls: the ports, or a record of an earlier episode.
#[async_trait]
pub trait Responder: Send {
    /// Answers call number `number`, before the deadline of the episode.
    ///
    /// # Errors
    /// A reason to end the episode that the harness is not told.
    async fn respond(
        &mut self,
        number: usize,
        call: &HostCall,
        deadline: Instant,
    ) -> Result<Response, Stop>;

    /// What the episode has used so far of what the responder counts, by the limit's name.
    fn used(&self) -> Vec<(&'static str, u64)>;

    /// Forgets what the episode used, for a second start after its worker died.
    fn restart(&mut self);
}

/// An answer to a harness's call.
#[derive(Debug)]
pub struct Response {
    /// What the harness sees.
    pub reply: HostReply,
    /// What a model read and wrote, token by token, for each request that tells.
    pub tokens: Vec<Option<Tokens>>,
}

/// Why an episode ends without its harness being told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Something that is not the harness's fault: such an episode is run again, never scored.
    Infrastructure(String),
    /// A replayed harness made another call than the recorded one.
    Diverged(String),
}
