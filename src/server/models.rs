//! `GET /v1/models`: what is served here, in the form that clients of that API expect, with each model's card.

use axum::Json;
use axum::extract::State as Shared;
use serde::Serialize;

use super::App;
use crate::engine::State;
use crate::models::ModelCard;

/// The response.
#[derive(Serialize)]
pub(super) struct ModelList {
    object: &'static str,
    data: Vec<Model>,
}

#[derive(Serialize)]
struct Model {
    id: String,
    object: &'static str,
    /// When this server started, as a Unix time: clients of the list expect a number, and a checkpoint has no date.
    created: u64,
    owned_by: &'static str,
    state: &'static str,
    /// Not known before the model is loaded.
    #[serde(flatten)]
    card: Option<ModelCard>,
}

/// The handler.
pub(super) async fn models(Shared(app): Shared<App>) -> Json<ModelList> {
    let data = app.engines().iter().map(|engine| {
        let (state, card) = match engine.state() {
            State::Loading => ("loading", None),
            State::Ready(profile) => ("ready", Some(profile.card.clone())),
            State::Stopped(_) => ("stopped", None),
        };
        let (id, created) = (engine.name().to_owned(), app.started().as_secs());
        Model { id, object: "model", created, owned_by: "tapline", state, card }
    });
    Json(ModelList { object: "list", data: data.collect() })
}
