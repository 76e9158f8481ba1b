//! The probes say what is, at once, whatever the engine is doing.

use std::time::Duration;

use axum::http::StatusCode;
use tapline::engine::pool::CpuPool;
use tapline::engine::{EngineOptions, Handle, simulated};
use tapline::schedule::{Admission, admission};
use tapline::server::{App, ServerOptions};

use crate::support::{Gate, PATIENCE, Server, Setup, ask};

#[tokio::test]
async fn ready_only_once_every_model_is() {
    let pool = CpuPool::new(1, 8).unwrap();
    let (load, wait) = std::sync::mpsc::channel::<()>();
    let engine = Handle::spawn(EngineOptions::new("slow"), pool.clone(), move || {
        let _go = wait.recv();
        simulated::model("slow", simulated::no_hook())
    });
    let engine = engine.unwrap();
    let app =
        App::new(vec![engine.clone()], pool, Admission::new(admission::Limits::default()), ServerOptions::default());
    let server = Server::of(app);
    for path in ["/health", "/health/ready"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.json()["reason"], "the model `slow` is loading");
        assert_eq!(answer.json()["models"][0]["state"], "loading");
    }
    assert_eq!(server.get("/health/live").await.status, StatusCode::OK, "loading is not death");
    load.send(()).unwrap();
    engine.ready().await.unwrap();
    let answer = server.get("/health").await;
    assert_eq!((answer.status, answer.json()["ready"].as_bool()), (StatusCode::OK, Some(true)));
}

#[tokio::test]
async fn probes_answer_while_the_engine_is_held_up() {
    let (mut gate, hook) = Gate::new();
    let server = Setup::new("busy", hook).start().await;
    let held = server.locate_meanwhile(ask(1, "go"));
    gate.event().await;
    for path in ["/health", "/health/ready", "/health/live", "/metrics", "/v1/models"] {
        let answer = tokio::time::timeout(PATIENCE, server.get(path)).await.expect(path);
        assert_eq!(answer.status, StatusCode::OK, "{path}");
    }
    let live = server.get("/health/live").await.json();
    assert_eq!((live["alive"].as_bool(), live["models"][0]["busy"].as_bool()), (Some(true), Some(true)));
    drop(gate);
    held.await.unwrap().results();
}

#[tokio::test]
async fn a_step_beyond_the_threshold_is_death() {
    let (mut gate, hook) = Gate::new();
    let mut setup = Setup::new("stalled", hook);
    setup.options.stall_threshold = Duration::ZERO;
    let server = setup.start().await;
    assert_eq!(server.get("/health/live").await.status, StatusCode::OK, "an idle engine is alive");
    let held = server.locate_meanwhile(ask(1, "go"));
    gate.event().await;
    assert_eq!(server.get("/health/live").await.status, StatusCode::SERVICE_UNAVAILABLE);
    let ready = server.get("/health/ready").await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ready.json()["models"][0]["state"], "stalled");
    drop(gate);
    held.await.unwrap().results();
}
