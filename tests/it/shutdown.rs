//! The way out: not ready at once, what was accepted is answered, nothing new is taken, and nothing keeps it from ending.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use axum::http::StatusCode;
use tapline::engine::{State, simulated};
use tapline::server::{Phase, ServerOptions};

use crate::support::{Gate, Listening, Server, Setup, ask, exchange, head, read_response, until, until_inside};

/// Longer than any test: what ends does so for another reason.
const FOREVER: Duration = Duration::from_hours(1);

fn patient() -> ServerOptions {
    ServerOptions { drain_timeout: FOREVER, head_timeout: FOREVER, ..ServerOptions::default() }
}

/// A request on a socket of its own, its answer read to the end.
fn locate_on_socket(listening: &Listening, seed: u32) -> tokio::task::JoinHandle<String> {
    let body = serde_json::to_vec(&ask(seed, "go")).unwrap();
    let head = head(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    let stream = listening.connect();
    tokio::task::spawn_blocking(move || exchange(stream, &[head.as_bytes(), &body].concat()))
}

fn get_health(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    read_response(stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_requests_are_answered_and_new_ones_refused() {
    let (mut gate, hook) = Gate::new();
    let mut setup = Setup::new("drain", hook);
    setup.options = patient();
    let server = setup.start().await;
    let mut listening = server.listen().await;
    let accepted = locate_on_socket(&listening, 1);
    gate.event().await;

    let address = listening.address;
    listening.shut_down();
    server.app.drain().reached(Phase::Draining).await;
    assert_eq!(server.get("/health").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.get("/health").await.json()["reason"], "the server is shutting down");
    assert_eq!(server.get("/health/live").await.status, StatusCode::OK);
    until("no connection is accepted", || TcpStream::connect(address).is_err()).await;
    until("the door is shut", || server.app.admission().is_closed()).await;
    let refused = server.locate(&ask(2, "go")).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "draining"));
    assert_eq!((refused.header("connection"), refused.header("retry-after")), ("close", "1"));
    assert!(!listening.serving.is_finished());

    drop(gate);
    let answer = accepted.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("connection: close") && answer.contains("\"results\":["), "{answer}");
    listening.ended().await;
    until("the engine has ended", || matches!(server.app.engines()[0].state(), State::Stopped(_))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_do_not_keep_it() {
    let mut setup = Setup::new("idle", simulated::no_hook());
    setup.options = patient();
    let server = setup.start().await;
    let mut listening = server.listen().await;
    let mut used = listening.connect();
    assert!(get_health(&mut used).starts_with("HTTP/1.1 200"));
    let mut unused = listening.connect();
    let mut half = listening.connect();
    half.write_all(b"GET /health HTT").unwrap();
    // Connections are accepted in order: once a later one is answered, the earlier ones are there.
    assert!(get_health(&mut listening.connect()).starts_with("HTTP/1.1 200"));

    listening.shut_down();
    listening.ended().await;
    for stream in [&mut used, &mut unused, &mut half] {
        assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_after_the_timeout_is_told() {
    let (mut gate, hook) = Gate::new();
    let mut setup = Setup::new("left-over", hook);
    setup.options = ServerOptions { drain_timeout: Duration::from_millis(20), ..patient() };
    let server = setup.start().await;
    let mut listening = server.listen().await;
    let left = locate_on_socket(&listening, 1);
    gate.event().await;
    listening.shut_down();
    let answer = left.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("\"code\":\"draining\""), "{answer}");
    listening.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_at_once() {
    let (mut gate, hook) = Gate::new();
    let mut setup = Setup::new("second", hook);
    setup.options = ServerOptions { drain_grace: FOREVER, ..patient() };
    let server = setup.start().await;
    let mut listening = server.listen().await;
    let left = locate_on_socket(&listening, 1);
    gate.event().await;
    listening.shut_down();
    server.app.drain().reached(Phase::Leaving).await;
    server.app.drain().advance(Phase::Stopping);
    assert!(left.await.unwrap().starts_with("HTTP/1.1 503"));
    listening.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_the_grace_it_is_not_ready_but_serves() {
    let mut setup = Setup::new("grace", simulated::no_hook());
    setup.options = ServerOptions { drain_grace: FOREVER, ..patient() };
    let server: Server = setup.start().await;
    let mut listening = server.listen().await;
    let mut open = listening.connect();
    assert!(get_health(&mut open).starts_with("HTTP/1.1 200"));
    let address = listening.address;
    listening.shut_down();
    server.app.drain().reached(Phase::Leaving).await;

    let answer = get_health(&mut open);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("connection: close"), "{answer}");
    assert_eq!(open.read(&mut [0; 16]).unwrap(), 0, "an open connection is closed after its next answer");
    let mut new = TcpStream::connect(address).unwrap();
    assert!(get_health(&mut new).starts_with("HTTP/1.1 503"));
    let served = server.locate(&ask(1, "go")).await;
    assert_eq!((served.status, served.header("connection")), (StatusCode::OK, "close"));
    until_inside(&server, 0).await;
    server.app.drain().advance(Phase::Draining);
    listening.ended().await;
}
