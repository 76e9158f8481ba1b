//! HTTP: admission before work, the routes, errors with stable codes, health, and an orderly end. It knows no tensor, and
//! nothing below it knows HTTP.

pub mod app;
mod body;
mod connection;
pub mod drain;
pub mod error;
mod fields;
mod health;
mod image_text;
mod locate;
mod metrics;
mod models;
mod observation;
mod observe;
mod request;
pub mod request_id;
pub mod response;
mod router;
mod suggest;
mod supervise;

use std::io;
use std::pin::pin;
use std::time::Duration;

pub use app::{App, ServerOptions};
pub use drain::{Drain, Phase};
pub use error::{ApiError, Code};
pub use response::{LocateResponse, SpaceName};
pub use router::router;
pub use supervise::supervise;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::telemetry::{self, gpu::Sample};

/// Time for the last errors to be written after the drain has run out of time.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often histograms are folded (see [`telemetry::upkeep`]) and GPUs are looked at.
const UPKEEP: Duration = Duration::from_secs(5);
/// Time to wait when the system has no more file descriptors: connections must end before others can begin.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(50);

/// Resolves at the first SIGTERM or ctrl-c, which makes [`serve`] drain. A second one makes it stop at once.
pub async fn terminated(app: App) {
    drain::signal().await;
    tracing::info!("asked to end; a second signal ends at once");
    tokio::spawn(async move {
        drain::signal().await;
        app.drain().advance(Phase::Stopping);
    });
}

/// Serves on `listener` until `shutdown` resolves, then drains: not ready from that moment on, still accepting for
/// [`ServerOptions::drain_grace`], then finishing what was accepted within [`ServerOptions::drain_timeout`], then answering
/// the rest with an error and closing the engines. The engines may still be loading when it starts.
///
/// # Errors
/// The listener takes no connections any more. The server has drained by then. A connection that fails ends alone.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let options = app.options().clone();
    let drain = app.drain();
    let mut connections = JoinSet::new();
    // In a set, so that it ends with this future.
    let mut background = JoinSet::new();
    background.spawn(upkeep());
    let router = router(app.clone());
    let mut listening = accept(&listener, &app, &router, &mut connections, shutdown).await;
    drain.advance(Phase::Leaving);
    if listening.is_ok() {
        let grace = tokio::time::timeout(options.drain_grace, drain.reached(Phase::Draining));
        let over = async { drop(grace.await) };
        listening = accept(&listener, &app, &router, &mut connections, over).await;
    }
    drain.advance(Phase::Draining);
    app.admission().close();
    drop(listener);
    tracing::info!(in_flight = app.admission().in_flight(), "draining");

    tokio::select! {
        () = all_ended(&mut connections) => {}
        () = tokio::time::sleep(options.drain_timeout) => {}
        () = drain.reached(Phase::Stopping) => {}
    }
    let left = connections.len();
    drain.advance(Phase::Stopping);
    if left > 0 {
        tracing::warn!(connections = left, "out of time to drain");
        let _late = tokio::time::timeout(LAST_WORDS, all_ended(&mut connections)).await;
    }
    connections.shutdown().await;
    app.engines().iter().for_each(crate::engine::Handle::close);
    listening
}

/// Accepts connections until `end` resolves.
async fn accept(
    listener: &TcpListener,
    app: &App,
    router: &Router,
    connections: &mut JoinSet<()>,
    end: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut end = pin!(end);
    loop {
        tokio::select! {
            biased;
            () = end.as_mut() => return Ok(()),
            // A finished task keeps its memory until it is taken out.
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection::serve(stream, app.clone(), router.clone()));
                }
                Err(error) if is_the_clients(&error) => {}
                // No listening socket any more, and none again: trying further would only fill the log.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
                Err(error) => {
                    tracing::error!(%error, "cannot accept connections");
                    tokio::time::sleep(OUT_OF_DESCRIPTORS).await;
                }
            },
        }
    }
}

/// The connection was gone before it was accepted.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn all_ended(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}

async fn upkeep() {
    let mut ticks = tokio::time::interval(UPKEEP);
    loop {
        ticks.tick().await;
        telemetry::upkeep();
        // On a thread that may wait for the driver. What it found when the server ends is of no interest.
        let _looked = tokio::task::spawn_blocking(|| telemetry::gpu::sample().iter().for_each(Sample::record)).await;
    }
}
