//! The probes. They read what the engine threads have written, and wait for nobody: a long batch must not look like death.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::App;
use crate::engine::State;

/// Whether requests are best sent here.
#[derive(Serialize)]
struct Readiness {
    ready: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    draining: bool,
    models: Vec<ModelReadiness>,
}

#[derive(Serialize)]
struct ModelReadiness {
    model: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

/// Whether the process is best restarted.
#[derive(Serialize)]
struct Liveness {
    alive: bool,
    models: Vec<ModelLiveness>,
}

#[derive(Serialize)]
struct ModelLiveness {
    model: String,
    alive: bool,
    /// A batch is running.
    busy: bool,
    /// Time since the engine thread's last sign of life.
    last_sign_ms: u128,
}

/// `GET /health/ready` and `GET /health`: 200 when every model answers and the server stays, otherwise 503 and why.
pub(super) async fn ready(Shared(app): Shared<App>) -> Response {
    let threshold = app.options().stall_threshold;
    let mut reason = app.is_leaving().then(|| "the server is shutting down".to_owned());
    let mut models = Vec::with_capacity(app.engines().len());
    for engine in app.engines() {
        let (state, cause) = match engine.state() {
            State::Loading => ("loading", None),
            State::Stopped(cause) => ("stopped", Some(cause.to_string())),
            State::Ready(_) if !engine.pulse().is_alive(threshold) => ("stalled", None),
            State::Ready(_) => ("ready", None),
        };
        if state != "ready" {
            reason.get_or_insert_with(|| format!("the model `{}` is {state}", engine.name()));
        }
        models.push(ModelReadiness { model: engine.name().to_owned(), state, cause });
    }
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = Readiness { ready: reason.is_none(), reason, draining: app.is_leaving(), models };
    (status, Json(body)).into_response()
}

/// `GET /health/live`: 200 while no engine's step takes longer than any step may.
pub(super) async fn live(Shared(app): Shared<App>) -> Response {
    let threshold = app.options().stall_threshold;
    let of = |engine: &crate::engine::Handle| {
        let pulse = engine.pulse();
        let (model, alive) = (engine.name().to_owned(), pulse.is_alive(threshold));
        ModelLiveness { model, alive, busy: pulse.busy, last_sign_ms: pulse.age.as_millis() }
    };
    let models: Vec<_> = app.engines().iter().map(of).collect();
    let alive = models.iter().all(|model| model.alive);
    let status = if alive { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Liveness { alive, models })).into_response()
}
