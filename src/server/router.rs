//! Which path is answered by whom, and what happens around every handler.

use axum::Router;
use axum::http::Method;
use axum::http::Uri;
use axum::middleware;
use axum::routing::{get, post};

use super::App;
use super::error::{ApiError, Code};
use super::{health, locate, metrics, models, observe};

/// The routes whose requests are counted.
pub(super) const COUNTED: [&str; 1] = [locate::ROUTE];

/// All routes as one service; a test can call it without a socket.
pub fn router(app: App) -> Router {
    Router::new()
        .route(locate::ROUTE, post(locate::locate))
        .route("/health", get(health::ready))
        .route("/health/ready", get(health::ready))
        .route("/health/live", get(health::live))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/models", get(models::models))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(app.clone(), observe::observe))
        .with_state(app)
}

async fn not_found(uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(128).collect();
    ApiError::new(
        Code::NotFound,
        format!("there is nothing at `{path}`"),
        "the routes are: POST /locate, GET /health, /health/live, /health/ready, /metrics, /v1/models",
    )
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    ApiError::new(
        Code::MethodNotAllowed,
        format!("`{}` does not take {method}", uri.path()),
        "use one of the methods in the `allow` header",
    )
}
