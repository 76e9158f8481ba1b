//! The way out: from serving to stopped, one step after another and never back. It knows no connection and no request.

use tokio::sync::watch;

/// How far on its way out the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not on its way out.
    Serving,
    /// Told to go: not ready any more, so that balancers look elsewhere, but still answering whoever comes.
    Leaving,
    /// Takes nothing new; what was accepted is finished.
    Draining,
    /// Out of time: what is left is answered with an error.
    Stopping,
}

/// The server's phase, seen by every connection and request.
#[derive(Debug)]
pub struct Drain {
    phase: watch::Sender<Phase>,
}

impl Default for Drain {
    fn default() -> Self {
        Self { phase: watch::Sender::new(Phase::Serving) }
    }
}

impl Drain {
    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Goes on to `phase`, unless the server is that far already.
    pub fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }

    /// Waits until the server is as far as `phase`.
    pub async fn reached(&self, phase: Phase) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }
}

/// Resolves when the process is asked to end: SIGTERM, or ctrl-c at a terminal.
pub(super) async fn signal() {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM cannot be watched and will end the process at once");
                std::future::pending::<()>().await;
            }
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn goes_forward_only() {
        let drain = Drain::default();
        drain.advance(Phase::Draining);
        drain.advance(Phase::Leaving);
        assert_eq!(drain.phase(), Phase::Draining);
        drain.reached(Phase::Leaving).await;
        drain.reached(Phase::Draining).await;
        let ((), ()) = tokio::join!(drain.reached(Phase::Stopping), async { drain.advance(Phase::Stopping) });
    }
}
