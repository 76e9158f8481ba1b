//! Servers with a simulated model for the tests: built in a line, held up and failed at will, asked with or without a socket.

use std::io::{Cursor, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use base64::Engine as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tapline::engine::pool::CpuPool;
use tapline::engine::simulated::{self, Event, Hook};
use tapline::engine::{EngineOptions, Handle};
use tapline::schedule::admission::Limits;
use tapline::schedule::{Admission, Policy};
use tapline::server::{self, App, ServerOptions};
use tapline::telemetry;
use tokio::sync::oneshot;
use tower::ServiceExt as _;

/// Longer than anything here takes; a test that waits for it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What a test changes about a server.
pub(crate) struct Setup {
    /// The models, the default one first.
    pub(crate) models: Vec<(&'static str, Hook)>,
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    pub(crate) options: ServerOptions,
}

impl Setup {
    /// One model of this name with this hook.
    pub(crate) fn new(name: &'static str, hook: Hook) -> Self {
        Self {
            models: vec![(name, hook)],
            policy: Policy::default(),
            limits: Limits::default(),
            options: ServerOptions::default(),
        }
    }

    /// The server, its models ready.
    pub(crate) async fn start(self) -> Server {
        let pool = CpuPool::new(2, 64).unwrap();
        let engines: Vec<_> = self
            .models
            .into_iter()
            .map(|(name, hook)| {
                let options = EngineOptions { policy: self.policy, ..EngineOptions::new(name) };
                Handle::spawn(options, pool.clone(), move || simulated::model(name, hook)).unwrap()
            })
            .collect();
        for engine in &engines {
            engine.ready().await.unwrap();
        }
        let app = App::new(engines, pool, Admission::new(self.limits), self.options);
        Server { router: server::router(app.clone()), app }
    }
}

/// A server without a socket.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) app: App,
    router: Router,
}

/// A response that has arrived.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Server {
    /// A server with one model that does as it is told.
    pub(crate) async fn plain(name: &'static str) -> Self {
        Setup::new(name, simulated::no_hook()).start().await
    }

    /// The router of an app that a test has built itself.
    pub(crate) fn of(app: App) -> Self {
        Self { router: server::router(app.clone()), app }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// `POST /locate` with a JSON body.
    pub(crate) async fn locate(&self, body: &Value) -> Answer {
        self.send(locate(body)).await
    }

    /// As [`Self::locate`], while the test goes on.
    pub(crate) fn locate_meanwhile(&self, body: Value) -> tokio::task::JoinHandle<Answer> {
        let server = self.clone();
        tokio::spawn(async move { server.locate(&body).await })
    }

    /// Serves on a socket.
    pub(crate) async fn listen(&self) -> Listening {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shutdown, signal) = oneshot::channel::<()>();
        let serving = tokio::spawn(server::serve(listener, self.app.clone(), async {
            let _dropped = signal.await;
        }));
        Listening { address, shutdown: Some(shutdown), serving }
    }
}

/// A server on a socket.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    shutdown: Option<oneshot::Sender<()>>,
    pub(crate) serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Listening {
    /// A connection on which the test reads and writes bytes itself, blocking its own thread.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Asks the server to end.
    pub(crate) fn shut_down(&mut self) {
        self.shutdown.take().unwrap().send(()).unwrap();
    }

    /// Waits until the server has ended.
    pub(crate) async fn ended(self) {
        tokio::time::timeout(PATIENCE, self.serving).await.expect("the server did not end").unwrap().unwrap();
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The header's value, or nothing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The code of an error.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The results of an answer that must be a good one.
    pub(crate) fn results(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text());
        self.json()["results"].clone()
    }
}

/// A request to `/locate` as JSON.
pub(crate) fn locate(body: &Value) -> Request<Body> {
    Request::post("/locate")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(serde_json::to_vec(body).unwrap()))
        .unwrap()
}

/// A request to `/locate` with the image as its body.
pub(crate) fn raw(query: &str, image: impl Into<Body>) -> Request<Body> {
    Request::post(format!("/locate{query}")).header(header::CONTENT_TYPE, "image/png").body(image.into()).unwrap()
}

/// A request to `/locate` of these parts: name, content type, content.
pub(crate) fn multipart(parts: &[(&str, &str, &[u8])]) -> Request<Body> {
    let mut body = Vec::new();
    for (name, kind, content) in parts {
        let head = format!("--border\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n");
        body.extend(head.as_bytes());
        body.extend(format!("Content-Type: {kind}\r\n\r\n").as_bytes());
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(b"--border--\r\n");
    Request::post("/locate")
        .header(header::CONTENT_TYPE, "multipart/form-data; boundary=border")
        .body(Body::from(body))
        .unwrap()
}

/// A screenshot that differs from that of any other seed.
pub(crate) fn screenshot(width: u32, height: u32, seed: u32) -> image::RgbImage {
    image::RgbImage::from_fn(width, height, |x, y| {
        let [red, green, blue, _] = (x * 7 + y * 13).wrapping_mul(seed.wrapping_mul(2_654_435_761) | 1).to_le_bytes();
        image::Rgb([red, green, blue])
    })
}

/// The same as a file.
pub(crate) fn encoded(picture: &image::RgbImage, format: image::ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, format).unwrap();
    file.into_inner()
}

pub(crate) fn png(width: u32, height: u32, seed: u32) -> Vec<u8> {
    encoded(&screenshot(width, height, seed), image::ImageFormat::Png)
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A JSON request for one command on a screenshot of this seed.
pub(crate) fn ask(seed: u32, command: &str) -> Value {
    json!({ "image": base64(&png(40, 30, seed)), "command": command })
}

/// Holds the engine at its next step until the test opens the gate.
pub(crate) struct Gate {
    events: tokio::sync::mpsc::Receiver<Event>,
    /// Nothing is ever sent: while it is there the engine waits.
    _closed: mpsc::Sender<()>,
}

impl Gate {
    /// A gate, and the hook that stops at it.
    pub(crate) fn new() -> (Self, Hook) {
        let (announce, events) = tokio::sync::mpsc::channel(64);
        let (closed, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let hook: Hook = Arc::new(move |event| {
            let _nobody_looks = announce.try_send(event.clone());
            let _open = wait.lock().unwrap().recv();
            Ok(())
        });
        (Self { events, _closed: closed }, hook)
    }

    /// The step at which the engine stands now.
    pub(crate) async fn event(&mut self) -> Event {
        tokio::time::timeout(PATIENCE, self.events.recv()).await.expect("the engine does nothing").unwrap()
    }

    /// Lets the engine go on from here; the steps it has taken meanwhile can still be read.
    pub(crate) fn open(self) -> Steps {
        Steps { events: self.events }
    }
}

/// The steps of an engine whose gate stands open.
pub(crate) struct Steps {
    events: tokio::sync::mpsc::Receiver<Event>,
}

impl Steps {
    /// All steps so far.
    pub(crate) fn all(mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

/// Waits until as many requests are inside.
pub(crate) async fn until_inside(server: &Server, requests: usize) {
    until(&format!("{requests} are inside"), || server.app.admission().in_flight() == requests).await;
}

/// Waits until as many requests for a model have ended like this.
pub(crate) async fn until_counted(model: &str, outcome: &str, times: usize) {
    let wanted = |line: &str| {
        line.starts_with("tapline_requests_total{")
            && line.contains(&format!("model=\"{model}\""))
            && line.contains(&format!("outcome=\"{outcome}\""))
            && line.ends_with(&format!(" {times}"))
    };
    until(&format!("{times} have ended as {outcome}"), || telemetry::render(|| ()).lines().any(wanted)).await;
}

/// A hook that writes down all prompts, and fails the step where `poison` says so.
pub(crate) fn recording(poison: impl Fn(&Event) -> bool + Send + Sync + 'static) -> (Hook, Arc<Mutex<Vec<Event>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook: Hook = Arc::new({
        let seen = Arc::clone(&seen);
        move |event| {
            seen.lock().unwrap().push(event.clone());
            if poison(event) { Err("poison".to_owned()) } else { Ok(()) }
        }
    });
    (hook, seen)
}

/// Waits, without sleeping longer than needed, until something that another thread does has become true.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("it never came true that {what}"));
}

/// Writes bytes and reads until the server closes.
pub(crate) fn exchange(mut stream: TcpStream, request: &[u8]) -> String {
    // A server may answer and close before it has read everything.
    let _closed = stream.write_all(request);
    let mut response = Vec::new();
    let _reset = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

/// Reads one response with a `content-length` from a connection that stays open.
pub(crate) fn read_response(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    let mut byte = [0];
    let mut length = None;
    while length != Some(response.len()) {
        if stream.read(&mut byte).unwrap() == 0 {
            break;
        }
        response.push(byte[0]);
        if length.is_none() && response.ends_with(b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&response).to_ascii_lowercase();
            let value = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            length = Some(response.len() + value.trim().parse::<usize>().unwrap());
        }
    }
    String::from_utf8_lossy(&response).into_owned()
}

/// The head of a request to `/locate` on a socket.
pub(crate) fn head(headers: &str) -> String {
    format!("POST /locate HTTP/1.1\r\nhost: test\r\n{headers}\r\n")
}
