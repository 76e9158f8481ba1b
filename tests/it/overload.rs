//! Too many requests, too late, or from callers who have gone: refused at once, and never computed.

use std::io::Write as _;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::json;
use tapline::engine::simulated::Event;
use tapline::schedule::Policy;
use tapline::schedule::admission::Limits;

use crate::support::{Gate, Setup, ask, head, raw, recording, until_counted, until_inside};

/// How many prompts of a list of events have this many letters; the first and last id are not letters.
fn prompts_of_length(events: &[Event], letters: usize) -> usize {
    let prompts = events.iter().flat_map(|event| match event {
        Event::Prompts(prompts) => prompts.as_slice(),
        Event::Images(_) => &[],
    });
    prompts.filter(|ids| ids.len() == letters + 2).count()
}

#[tokio::test]
async fn a_full_server_refuses_at_once_and_decodes_nothing() {
    let (mut gate, hook) = Gate::new();
    let mut setup = Setup::new("full", hook);
    setup.limits = Limits { requests: 2, ..Limits::default() };
    let server = setup.start().await;
    let first = server.locate_meanwhile(ask(1, "first"));
    gate.event().await;
    let second = server.locate_meanwhile(ask(2, "second"));
    until_inside(&server, 2).await;

    let started = Instant::now();
    // It is refused before it is looked at: not even its nonsense is noticed.
    let refused = server.locate(&json!({ "nonsense": true })).await;
    assert!(started.elapsed() < Duration::from_secs(1));
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::TOO_MANY_REQUESTS, "overloaded"));
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);

    drop(gate);
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    assert_eq!(second.await.unwrap().status, StatusCode::OK);
    until_inside(&server, 0).await;
    server.locate(&ask(3, "third")).await.results();
}

#[tokio::test]
async fn bytes_of_bodies_are_limited_together() {
    let (mut gate, hook) = Gate::new();
    let mut setup = Setup::new("bytes", hook);
    setup.limits = Limits { bytes: 10_000, ..Limits::default() };
    let server = setup.start().await;
    let first = server.locate_meanwhile(ask(1, "first"));
    gate.event().await;
    assert!(server.app.admission().admitted_bytes() > 0);
    let mut large = raw("?command=go", vec![0; 9_999]);
    assert_eq!(server.send(large).await.code(), "overloaded", "counted while it arrives");
    large = raw("?command=go", Vec::new());
    large.headers_mut().insert("content-length", "9999".parse().unwrap());
    assert_eq!(server.send(large).await.code(), "overloaded", "counted before it arrives");
    drop(gate);
    first.await.unwrap().results();
    until_inside(&server, 0).await;
    assert_eq!(server.app.admission().admitted_bytes(), 0);
}

#[tokio::test]
async fn a_late_answer_is_a_typed_error_and_is_not_computed() {
    let (mut gate, hook) = Gate::new();
    let server = Setup::new("late-answer", hook).start().await;
    let first = server.locate_meanwhile(ask(1, "first"));
    gate.event().await;
    let mut hurried = ask(2, "hurried");
    hurried["timeout_ms"] = 20.into();
    let late = server.locate(&hurried).await;
    assert_eq!((late.status, late.code().as_str()), (StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded"));
    assert!(late.text().contains("20 ms"), "{}", late.text());
    drop(gate);
    first.await.unwrap().results();
}

#[tokio::test]
async fn callers_who_left_the_queue_cost_nothing() {
    let (mut gate, hook) = Gate::new();
    let mut setup = Setup::new("left", hook);
    setup.policy = Policy { max_commands: 1, ..Policy::default() };
    let server = setup.start().await;
    let first = server.locate_meanwhile(ask(1, "abc"));
    gate.event().await;
    // One is formed into the next batch, the other waits in the queue; both callers leave.
    let formed = server.locate_meanwhile(ask(2, "abcde"));
    until_inside(&server, 2).await;
    let queued = server.locate_meanwhile(ask(3, "abcdefg"));
    until_inside(&server, 3).await;
    formed.abort();
    queued.abort();
    assert!(formed.await.unwrap_err().is_cancelled() && queued.await.unwrap_err().is_cancelled());
    let last = server.locate_meanwhile(ask(4, "abcdefghi"));

    let steps = gate.open();
    first.await.unwrap().results();
    last.await.unwrap().results();
    let events = steps.all();
    assert_eq!(prompts_of_length(&events, 9), 1);
    assert_eq!(prompts_of_length(&events, 5) + prompts_of_length(&events, 7), 0, "{events:?}");
    until_inside(&server, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_is_not_computed() {
    let (mut gate, hook) = Gate::new();
    let server = Setup::new("hang-up", hook).start().await;
    let listening = server.listen().await;
    let first = server.locate_meanwhile(ask(1, "abc"));
    gate.event().await;
    let body = serde_json::to_vec(&ask(2, "abcde")).unwrap();
    let mut stream = listening.connect();
    let head = head(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
    until_inside(&server, 2).await;
    drop(stream);
    until_counted("hang-up", "cancelled", 1).await;

    let steps = gate.open();
    first.await.unwrap().results();
    server.locate(&ask(3, "abcdefg")).await.results();
    let events = steps.all();
    assert_eq!((prompts_of_length(&events, 7), prompts_of_length(&events, 5)), (1, 0), "{events:?}");
    until_inside(&server, 0).await;
}

#[tokio::test]
async fn a_poisonous_request_fails_alone() {
    let poisonous = |event: &Event| prompts_of_length(std::slice::from_ref(event), 6) > 0;
    let (hook, _) = recording(poisonous);
    let mut setup = Setup::new("poison", hook);
    // All three wait for each other and run together.
    setup.policy = Policy { max_commands: 3, max_wait: Duration::from_secs(30) };
    let server = setup.start().await;
    let [one, poison, two] =
        [(1, "one"), (1, "poison"), (2, "two")].map(|(seed, command)| server.locate_meanwhile(ask(seed, command)));
    let (one, poison, two) = (one.await.unwrap(), poison.await.unwrap(), two.await.unwrap());
    one.results();
    two.results();
    assert_eq!((poison.status, poison.code().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "engine_failed"));
    assert!(!poison.json()["error"]["message"].as_str().unwrap().contains("poison"));
}
