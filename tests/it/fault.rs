//! A device that breaks for good: its batch gets an error at once, nobody is sent to it again, and the process ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use tapline::cli::Failure;
use tapline::engine::simulated::{Event, Hook};
use tapline::schedule::Policy;
use tapline::server;

use crate::support::{Gate, PATIENCE, Setup, ask, exchange, png, until_inside};

/// What Candle says when a kernel has written where it must not.
const ILLEGAL: &str = r#"DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")"#;

/// Tells the process that the test has started of itself what it is.
const CHILD: &str = "TAPLINE_TEST_BREAKS";

/// Fails every step as `message` says, and counts them.
fn failing(message: &'static str) -> (Hook, Arc<AtomicUsize>) {
    let steps = Arc::new(AtomicUsize::new(0));
    let hook: Hook = Arc::new({
        let steps = Arc::clone(&steps);
        move |_: &Event| {
            steps.fetch_add(1, Ordering::SeqCst);
            Err(message.to_owned())
        }
    });
    (hook, steps)
}

#[tokio::test]
async fn a_broken_device_is_asked_once_and_never_again() {
    let (hook, steps) = failing(ILLEGAL);
    let mut setup = Setup::new("breaks", hook);
    // Both in one batch, which would be tried one by one after any other failure.
    setup.policy = Policy { max_commands: 2, max_wait: PATIENCE };
    let server = setup.start().await;
    let requests = [1, 2].map(|seed| server.locate_meanwhile(ask(seed, "go")));
    for request in requests {
        let answer = request.await.unwrap();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text());
        // The cause is in the log; a caller can do nothing with it.
        assert!(!answer.text().contains("CUDA"), "{}", answer.text());
        // Whoever has an answer finds the server not ready.
        let ready = server.get("/health/ready").await;
        assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ready.json()["models"][0]["state"], "stopped");
        assert!(ready.json()["models"][0]["cause"].as_str().unwrap().contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
    }
    assert_eq!(server.locate(&ask(3, "go")).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(steps.load(Ordering::SeqCst), 1);
    assert_eq!(server.app.admission().in_flight(), 0);
}

#[tokio::test]
async fn full_memory_is_no_broken_device() {
    let (hook, steps) = failing(r#"DriverError(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")"#);
    let server = Setup::new("full-memory", hook).start().await;
    for request in 1..=2 {
        assert_eq!(server.locate(&ask(1, "go")).await.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(steps.load(Ordering::SeqCst), request);
    }
    assert_eq!(server.get("/health/ready").await.status, StatusCode::OK);
}

#[tokio::test]
async fn requests_behind_a_broken_device_are_told() {
    let (mut gate, held) = Gate::new();
    let hook: Hook = Arc::new(move |event| held(event).and(Err(ILLEGAL.to_owned())));
    let mut setup = Setup::new("breaks-queue", hook);
    setup.policy = Policy { max_commands: 1, ..Policy::default() };
    let server = setup.start().await;
    let first = server.locate_meanwhile(ask(1, "go"));
    gate.event().await;
    let others: Vec<_> = (2..6).map(|seed| server.locate_meanwhile(ask(seed, "go"))).collect();
    until_inside(&server, 5).await;
    drop(gate);
    for request in std::iter::once(first).chain(others) {
        let answer = tokio::time::timeout(PATIENCE, request).await.expect("a request is lost").unwrap();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    }
    until_inside(&server, 0).await;
}

/// The test starts itself as another process, which serves with a device that breaks at the first request.
#[test]
fn the_process_ends_with_70_and_says_why() {
    if std::env::var_os(CHILD).is_some() {
        serve_and_exit();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fault::the_process_ends_with_70_and_says_why", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("listening on ") {
        line.clear();
        assert!(talk.read_line(&mut line).unwrap() > 0, "the process ended before it listened");
    }
    let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
    let stream = std::net::TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = png(8, 8, 1);
    let head = format!(
        "POST /locate?command=go HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut request = head.into_bytes();
    request.extend(body);
    assert!(exchange(stream, &request).starts_with("HTTP/1.1 503"));
    let mut rest = String::new();
    talk.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(70), "{rest}");
    let lines: Vec<&str> =
        rest.lines().filter(|line| line.starts_with("error: ") || line.starts_with("hint: ")).collect();
    assert!(
        matches!(lines[..], [error, hint] if error.contains("CUDA_ERROR_ILLEGAL_ADDRESS") && hint.contains("Xid")),
        "{rest}"
    );
}

/// What `tapline serve` does once its engines have been started.
fn serve_and_exit() -> ! {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let fault = runtime.block_on(async {
        let app = Setup::new("breaks-process", failing(ILLEGAL).0).start().await.app;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        eprintln!("\nlistening on {}", listener.local_addr().unwrap());
        server::supervise(listener, app).await.unwrap()
    });
    let failure = Failure::from(fault.expect("the device breaks"));
    let _code = failure.report();
    std::process::exit(i32::from(failure.code()))
}
