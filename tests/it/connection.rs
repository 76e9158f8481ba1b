//! Clients that misbehave below HTTP: they hang up, dawdle, send too much, or send before they listen.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use tapline::engine::simulated;
use tapline::schedule::admission::Limits;

use crate::support::{
    Gate, PATIENCE, Server, Setup, ask, exchange, head, png, read_response, until_counted, until_inside,
};

fn small(name: &'static str) -> Setup {
    let mut setup = Setup::new(name, simulated::no_hook());
    setup.options.body_bytes = 100_000;
    setup
}

/// The head of a PNG that claims 30000x30000.
fn bomb() -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    file.extend([30_000_u32.to_be_bytes(), 30_000_u32.to_be_bytes()].concat());
    file
}

/// The server still answers.
async fn still_serves(server: &Server) {
    server.locate(&ask(1, "go")).await.results();
    until_inside(server, 0).await;
    assert_eq!(server.app.admission().admitted_bytes(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunked_body_is_cut_at_the_limit() {
    let server = small("chunked").start().await;
    let listening = server.listen().await;
    let mut stream = listening.connect();
    stream.write_all(head("content-type: application/json\r\ntransfer-encoding: chunked\r\n").as_bytes()).unwrap();
    let chunk = [b"4000\r\n".as_slice(), &[b' '; 0x4000], b"\r\n"].concat();
    for _ in 0..7 {
        stream.write_all(&chunk).unwrap();
    }
    let answer = read_response(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");
    drop(stream);
    still_serves(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bomb_is_refused_while_it_is_on_its_way() {
    let server = small("bomb").start().await;
    let listening = server.listen().await;
    let mut stream = listening.connect();
    let head = head("content-type: image/png\r\ncontent-length: 90000\r\n").replace("/locate", "/locate?command=go");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&bomb()).unwrap();
    let answer = read_response(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("image_too_large"), "{answer}");
    assert!(answer.contains("30000x30000"), "{answer}");
    drop(stream);
    still_serves(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_says_it_is_too_long_is_not_asked_for() {
    let server = small("expect").start().await;
    let listening = server.listen().await;
    let mut stream = listening.connect();
    let headers = "content-type: application/json\r\ncontent-length: 100001\r\nexpect: 100-continue\r\n";
    stream.write_all(head(headers).as_bytes()).unwrap();
    let answer = read_response(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");
    still_serves(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_up_during_the_upload_leaves_nothing_behind() {
    let server = small("mid-upload").start().await;
    let listening = server.listen().await;
    let mut stream = listening.connect();
    stream.write_all(head("content-type: application/json\r\ncontent-length: 5000\r\n").as_bytes()).unwrap();
    stream.write_all(&[b' '; 100]).unwrap();
    until_inside(&server, 1).await;
    drop(stream);
    until_inside(&server, 0).await;
    until_counted("mid-upload", "cancelled", 1).await;
    still_serves(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_head_is_cut_off() {
    let mut setup = small("slow-head");
    setup.options.head_timeout = Duration::from_millis(50);
    let server = setup.start().await;
    let listening = server.listen().await;
    let started = Instant::now();
    let mut stream = listening.connect();
    stream.write_all(b"POST /locate HTTP/1.1\r\nhost: t").unwrap();
    let mut rest = Vec::new();
    let _closed_or_reset = stream.read_to_end(&mut rest);
    assert!(started.elapsed() < PATIENCE && !String::from_utf8_lossy(&rest).contains("200 OK"));
    still_serves(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_body_meets_the_deadline() {
    let server = small("slow-body").start().await;
    let listening = server.listen().await;
    let mut stream = listening.connect();
    let head = head("content-type: image/png\r\ncontent-length: 9000\r\n");
    stream.write_all(head.replace("/locate", "/locate?command=go&timeout_ms=30").as_bytes()).unwrap();
    stream.write_all(&png(4, 4, 1)[..40]).unwrap();
    let answer = read_response(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("deadline_exceeded"), "{answer}");
    drop(stream);
    still_serves(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_before_it_listens_still_gets_the_refusal() {
    let (mut gate, hook) = Gate::new();
    let mut setup = Setup::new("linger", hook);
    setup.limits = Limits { requests: 1, ..Limits::default() };
    let server = setup.start().await;
    let listening = server.listen().await;
    let first = server.locate_meanwhile(ask(1, "go"));
    gate.event().await;
    // More than the sockets' buffers hold, so that the client stands in its write when the refusal comes.
    let body = vec![b' '; 20_000_000];
    let head =
        head(&format!("content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n", body.len()));
    let mut stream = listening.connect();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    let answer = read_response(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after: 1"), "{answer}");
    drop(gate);
    first.await.unwrap().results();
    still_serves(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_serves_good_and_bad_requests_in_turn() {
    let server = small("keep-alive").start().await;
    let listening = server.listen().await;
    let mut stream = listening.connect();
    for (body, status) in [("{}", 422), ("nonsense", 400), ("{\"x\":1}", 400)] {
        let head = head(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let answer = read_response(&mut stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    let body = serde_json::to_string(&ask(1, "go")).unwrap();
    let head =
        head(&format!("content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n", body.len()));
    assert!(exchange(stream, (head + &body).as_bytes()).starts_with("HTTP/1.1 200"));
    // What is not HTTP at all is the end of its connection only.
    exchange(listening.connect(), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n");
    still_serves(&server).await;
}
