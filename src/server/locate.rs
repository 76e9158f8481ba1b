//! `POST /locate`: admit, receive, ask the engine, answer. What each of these means is decided elsewhere.

use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};

use super::App;
use super::body;
use super::drain::Phase;
use super::error::ApiError;
use super::observation::Observation;
use super::response::{LocateResponse, server_timing};
use crate::schedule::AdmissionError;

/// The path, also the label `route`.
pub(super) const ROUTE: &str = "/locate";

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The handler.
pub(super) async fn locate(State(app): State<App>, request: Request) -> Response {
    let mut observation = Observation::begin(&app, ROUTE);
    let (parts, mut body) = request.into_parts();
    let answer = tokio::select! {
        answer = answer(&app, &parts, &mut body, &mut observation) => answer,
        // Out of time: whoever still waits is told so rather than cut off.
        () = app.drain().reached(Phase::Stopping) => Err(AdmissionError::ShuttingDown.into()),
    };
    answer.unwrap_or_else(|error| {
        observation.refused(&error);
        body::discard(&parts, body);
        error.into_response()
    })
}

async fn answer(
    app: &App,
    parts: &Parts,
    body: &mut Body,
    observation: &mut Observation,
) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    // In this order: the first check costs nothing, and each one saves the next.
    let mut permit = app.admission().try_enter()?;
    app.check_available()?;
    let located = body::receive(app, parts, body, &mut permit, arrived).await?;
    observation.model(located.engine.name());
    let read = arrived.elapsed();
    let mut reply = located.engine.locate(permit, located.request).await?;
    reply.timings.read = read;
    observation.answered(&reply);

    let mut response = Json(LocateResponse::new(located.engine.name(), located.space, &reply)).into_response();
    if let Ok(timing) = HeaderValue::try_from(server_timing(&reply.timings)) {
        response.headers_mut().insert(SERVER_TIMING, timing);
    }
    Ok(response)
}
