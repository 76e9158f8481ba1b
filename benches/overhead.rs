//! What the server adds to a request: a real server on loopback with a model that costs nothing, one client, one connection
//! that is kept, one request after the other:
//!
//!     cargo bench --bench overhead [-- --json] [-- --requests 2000]
//!
//! The overhead of a request is the time that its client waits, less what the reply says that decoding and resizing the image
//! and the model took. Everything else is in it: sockets, HTTP, admission, threads handing over to each other, choosing
//! tokens, JSON, and the client's own reading and writing.

use std::error::Error;
use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use base64::Engine as _;
use image::{ImageFormat, Rgb, RgbImage};
use serde_json::{Value, json};
use tapline::engine::pool::CpuPool;
use tapline::engine::simulated;
use tapline::engine::{EngineOptions, Handle};
use tapline::schedule::{Admission, admission};
use tapline::server::{self, App, ServerOptions};
use tapline::telemetry;
use tokio::sync::oneshot;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Where the pictures begin that no case before has sent.
const ANOTHER: usize = 1 << 20;
/// Requests before those that are measured.
const WARM_UP: usize = 200;
/// What the project promises at concurrency 1, in milliseconds: median and 99th percentile.
const PROMISE: (f64, f64) = (0.3, 1.0);

/// One way of asking.
struct Case {
    name: &'static str,
    request: fn(index: usize) -> Outcome<Vec<u8>>,
}

const CASES: [Case; 4] = [
    Case { name: "PNG 16x16, raw body", request: |index| Ok(post_png(&png(16, 16, index)?)) },
    Case { name: "PNG 320x640, raw body", request: |index| Ok(post_png(&png(320, 640, index)?)) },
    Case { name: "PNG 320x640, JSON and base64", request: |index| post_json(&png(320, 640, ANOTHER + index)?) },
    Case { name: "PNG 320x640, seen before", request: |_| Ok(post_png(&png(320, 640, 0)?)) },
];

/// Milliseconds of one request.
struct Times {
    waited: f64,
    overhead: f64,
}

fn main() -> Outcome<()> {
    let as_json = std::env::args().any(|argument| argument == "--json");
    let mut arguments = std::env::args().skip_while(|argument| argument != "--requests");
    let requests = arguments.nth(1).map_or(Ok(2000), |count| count.parse())?;

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (address, stop, serving) = runtime.block_on(start())?;
    let mut rows = Vec::new();
    for case in &CASES {
        rows.push((case.name, measure(address, case, requests)?));
    }
    // The server may have ended by itself, which it then says.
    let _ended = stop.send(());
    runtime.block_on(serving)??;
    if as_json {
        let rows: Vec<_> = rows.iter().map(|(name, times)| row_json(name, times)).collect();
        println!("{}", json!({ "requests": requests, "cases": rows }));
    } else {
        print_table(&rows, requests);
    }
    Ok(())
}

type Serving = tokio::task::JoinHandle<std::io::Result<()>>;

/// A server with a simulated model on a free port.
async fn start() -> Outcome<(SocketAddr, oneshot::Sender<()>, Serving)> {
    telemetry::render(|| ());
    let pool = CpuPool::new(0, 64)?;
    let engine =
        Handle::spawn(EngineOptions::new("null"), pool.clone(), || simulated::model("null", simulated::no_hook()))?;
    engine.ready().await?;
    let admission = Admission::new(admission::Limits::default());
    let app = App::new(vec![engine], pool, admission, ServerOptions::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server::serve(listener, app, async {
        let _dropped = stopped.await;
    }));
    Ok((address, stop, serving))
}

/// One request after the other; all are made beforehand.
fn measure(address: SocketAddr, case: &Case, requests: usize) -> Outcome<Vec<Times>> {
    let files = (0..WARM_UP + requests).map(case.request).collect::<Outcome<Vec<_>>>()?;
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut stream = BufReader::new(stream);
    let mut times = Vec::with_capacity(requests);
    for (index, file) in files.iter().enumerate() {
        let asked = Instant::now();
        stream.get_mut().write_all(file)?;
        let reply = reply(&mut stream)?;
        let waited = asked.elapsed().as_secs_f64() * 1e3;
        let reply: Value = serde_json::from_slice(&reply)?;
        let took = |stage: &str| reply["timings"][stage].as_f64().ok_or_else(|| format!("no `{stage}` in {reply}"));
        if index >= WARM_UP {
            let model = took("decode_ms")? + took("prepare_ms")? + took("vision_ms")? + took("text_ms")?;
            times.push(Times { waited, overhead: waited - model });
        }
    }
    Ok(times)
}

/// The body of a reply that must be a good one.
fn reply(stream: &mut BufReader<TcpStream>) -> Outcome<Vec<u8>> {
    let (mut line, mut length, mut status) = (String::new(), 0, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err("the connection was closed before the reply".into());
        }
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        if status.is_empty() {
            text.clone_into(&mut status);
        } else if let Some((name, value)) = text.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    if !status.contains(" 200 ") {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
    }
    Ok(body)
}

/// A file that differs from that of any other index.
fn png(width: u32, height: u32, index: usize) -> Outcome<Vec<u8>> {
    let mut picture =
        RgbImage::from_fn(width, height, |x, y| if (x / 8 + y / 8) % 3 == 0 { Rgb([40; 3]) } else { Rgb([240; 3]) });
    let [red, green, blue, ..] = index.to_le_bytes();
    picture.put_pixel(0, 0, Rgb([red, green, blue]));
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, ImageFormat::Png)?;
    Ok(file.into_inner())
}

fn post_png(file: &[u8]) -> Vec<u8> {
    post("/locate?command=open%20settings", "image/png", file)
}

fn post_json(file: &[u8]) -> Outcome<Vec<u8>> {
    let image = base64::engine::general_purpose::STANDARD.encode(file);
    let body = serde_json::to_vec(&json!({ "image": image, "command": "open settings" }))?;
    Ok(post("/locate", "application/json", &body))
}

fn post(path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// The value that this share of the requests stays below.
fn quantile(times: &[Times], of: impl Fn(&Times) -> f64, percent: usize) -> f64 {
    let mut sorted: Vec<f64> = times.iter().map(of).collect();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() * percent).div_ceil(100);
    sorted.get(index.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn row_json(name: &str, times: &[Times]) -> Value {
    let of = |percent| quantile(times, |times| times.overhead, percent);
    json!({
        "case": name,
        "waited_p50_ms": quantile(times, |times| times.waited, 50),
        "overhead_p50_ms": of(50), "overhead_p90_ms": of(90), "overhead_p99_ms": of(99),
    })
}

fn print_table(rows: &[(&str, Vec<Times>)], requests: usize) {
    let (p50, p99) = PROMISE;
    println!("{requests} requests each, one at a time; promised are p50 <= {p50} ms and p99 <= {p99} ms\n");
    println!("| request | waited p50 ms | overhead p50 ms | p90 | p99 | within |\n|---|---|---|---|---|---|");
    for (name, times) in rows {
        let waited = quantile(times, |times| times.waited, 50);
        let [median, p90, last] = [50, 90, 99].map(|percent| quantile(times, |times| times.overhead, percent));
        let within = if median <= p50 && last <= p99 { "yes" } else { "no" };
        println!("| {name} | {waited:.3} | {median:.3} | {p90:.3} | {last:.3} | {within} |");
    }
}
