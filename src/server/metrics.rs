//! `GET /metrics` in the Prometheus text format.

use axum::extract::State;
use axum::http::{HeaderName, header};

use super::App;
use crate::telemetry;

/// The handler.
pub(super) async fn metrics(State(app): State<App>) -> ([(HeaderName, &'static str); 1], String) {
    let text = telemetry::render(|| app.observe());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}
