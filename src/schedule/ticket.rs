//! A request waiting for its reply. It carries whatever work the engine will do, and does not look into it.

use std::time::Instant;

use tokio::sync::oneshot;

use super::Permit;

/// What a piece of work costs a batch.
pub trait Weight {
    /// Commands to answer: rows of the text model.
    fn commands(&self) -> usize;
}

/// One admitted request: its work, the latest moment at which an answer is still wanted, and where the answer goes.
#[derive(Debug)]
pub struct Ticket<W, R> {
    /// What the engine has to do.
    pub work: W,
    /// After this moment nobody wants the answer.
    pub deadline: Instant,
    /// When the ticket entered the queue, for the `queue` stage.
    pub queued: Instant,
    /// Where the answer goes. Closed when the client has gone.
    pub reply: oneshot::Sender<R>,
    /// The caller's place among the admitted requests; given back when the ticket is dropped.
    pub permit: Permit,
}

impl<W, R> Ticket<W, R> {
    /// Nobody waits for the answer any more.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.reply.is_closed()
    }

    /// The answer would come too late.
    #[must_use]
    pub fn is_expired(&self, now: Instant) -> bool {
        now >= self.deadline
    }
}
