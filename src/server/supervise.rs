//! Serving until the end, wanted or not: a broken or hanging engine ends the server too, since what a broken device holds
//! cannot be freed from inside the process.

use std::io;
use std::time::Duration;

use tokio::net::TcpListener;

use super::{App, Phase, serve, terminated};
use crate::engine::{EngineError, State};

/// How often the engines are looked at: a dead one is noticed within this time.
const WATCH: Duration = Duration::from_millis(250);

/// As [`serve`], until the process is asked to end or an engine fails. The error is why it failed; the process should then end
/// with another exit code than 0, for its supervisor to start it anew.
///
/// # Errors
/// The listener takes no connections any more.
pub async fn supervise(listener: TcpListener, app: App) -> io::Result<Option<EngineError>> {
    let mut fault = None;
    let shutdown = async {
        tokio::select! {
            () = terminated(app.clone()) => {}
            error = watch(&app) => fault = Some(error),
        }
    };
    serve(listener, app.clone(), shutdown).await?;
    Ok(fault)
}

/// Waits until an engine fails, and says why.
async fn watch(app: &App) -> EngineError {
    let stall_threshold = app.options().stall_threshold;
    let mut ticks = tokio::time::interval(WATCH);
    let mut ready = vec![false; app.engines().len()];
    loop {
        ticks.tick().await;
        for (engine, ready) in app.engines().iter().zip(&mut ready) {
            match engine.state() {
                State::Stopped(cause) => {
                    if !*ready {
                        // Nobody has been answered yet, so there is nobody to wait for.
                        app.drain().advance(Phase::Stopping);
                    }
                    return EngineError::Stopped { cause };
                }
                State::Ready(_) => *ready = true,
                State::Loading => {}
            }
            let pulse = engine.pulse();
            if !pulse.is_alive(stall_threshold) {
                return EngineError::Stalled { since: pulse.age };
            }
        }
    }
}
