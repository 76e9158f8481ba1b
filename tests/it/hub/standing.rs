//! A stand-in hub on this machine: a hub that describes files and a storage behind it that sends them, as two servers, so
//! that what must stay with the hub can be seen to stay there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tapline::hub::{HubOptions, Repository};

pub const ID: &str = "owner/model";
pub const COMMIT: &str = "00112233445566778899aabbccddeeff00112233";
pub const WEIGHTS: &str = "model.safetensors";

/// A request that a server saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// `hub` or `storage`.
    pub server: &'static str,
    pub method: Method,
    pub path: String,
    pub range: Option<String>,
    pub token: Option<String>,
}

/// What the stand-in hub has, and how it behaves.
#[derive(Debug)]
pub struct Hub {
    pub files: BTreeMap<&'static str, Vec<u8>>,
    /// What it calls the commit.
    pub commit: String,
    /// Without this token it refuses.
    pub token: Option<&'static str>,
    /// The storage sends so many bytes of each answer and breaks the connection.
    pub cut: Option<usize>,
    /// The storage sends this instead.
    pub forged: Option<Vec<u8>>,
    /// The length that it claims for large files.
    pub claimed: Option<u64>,
    pub ignores_ranges: bool,
    /// So many more requests fail with 503.
    pub failures: usize,
    pub seen: Vec<Seen>,
}

#[derive(Clone)]
pub struct Standing {
    pub hub: Arc<Mutex<Hub>>,
    pub endpoint: String,
    pub storage: String,
    pub cache: Arc<tempfile::TempDir>,
}

pub fn weights() -> Vec<u8> {
    (0..300_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

impl Standing {
    pub async fn start() -> Self {
        let files = BTreeMap::from([
            ("config.json", b"{}".to_vec()),
            ("tokenizer.json", b"{ }".to_vec()),
            (WEIGHTS, weights()),
            ("run_me.py", b"print('never fetched')".to_vec()),
        ]);
        let hub = Arc::new(Mutex::new(Hub {
            files,
            commit: COMMIT.to_owned(),
            token: None,
            cut: None,
            forged: None,
            claimed: None,
            ignores_ranges: false,
            failures: 0,
            seen: Vec::new(),
        }));
        let bind = async || tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (front, back) = (bind().await, bind().await);
        let address = |listener: &tokio::net::TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let standing = Self {
            hub,
            endpoint: address(&front),
            storage: address(&back),
            cache: Arc::new(tempfile::tempdir().unwrap()),
        };
        let describing = Router::new().fallback(describe).with_state(standing.clone());
        let sending = Router::new().fallback(send).with_state(standing.clone());
        tokio::spawn(async { axum::serve(front, describing).await });
        tokio::spawn(async { axum::serve(back, sending).await });
        standing
    }

    pub fn set(&self, change: impl FnOnce(&mut Hub)) {
        change(&mut self.hub.lock().unwrap());
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.hub.lock().unwrap().seen.clone()
    }

    pub fn options(&self) -> HubOptions {
        HubOptions {
            endpoint: self.endpoint.clone(),
            cache: self.cache.path().to_owned(),
            token: None,
            offline: false,
            attempts: 3,
            backoff: Duration::from_millis(1),
        }
    }

    pub fn file(&self, name: &str) -> Option<PathBuf> {
        Repository::new(self.cache.path(), ID).file(COMMIT, name)
    }

    /// Names in the folder of contents.
    pub fn blobs(&self) -> Vec<String> {
        let folder = self.cache.path().join("models--owner--model/blobs");
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn note(standing: &Standing, server: &'static str, request: &Request) -> Option<Response> {
    let text = |headers: &HeaderMap, name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let mut hub = standing.hub.lock().unwrap();
    hub.seen.push(Seen {
        server,
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        range: text(request.headers(), header::RANGE),
        token: text(request.headers(), header::AUTHORIZATION),
    });
    if hub.failures > 0 {
        hub.failures -= 1;
        return Some(StatusCode::SERVICE_UNAVAILABLE.into_response());
    }
    None
}

/// The hub: small files itself, large ones by pointing to the storage.
async fn describe(State(standing): State<Standing>, request: Request) -> Response {
    if let Some(failure) = note(&standing, "hub", &request) {
        return failure;
    }
    let hub = standing.hub.lock().unwrap();
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if hub.token.is_some_and(|expected| token != Some(format!("Bearer {expected}").as_str())) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let path = request.uri().path();
    let refuse = |code: &'static str| (StatusCode::NOT_FOUND, [("x-error-code", code)]).into_response();
    if let Some(revision) = path.strip_prefix(&format!("/api/models/{ID}/revision/")) {
        if revision != "main" && revision != COMMIT {
            return refuse("RevisionNotFound");
        }
        let files: Vec<_> = hub.files.keys().map(|file| serde_json::json!({ "rfilename": file })).collect();
        return serde_json::json!({ "sha": hub.commit, "siblings": files }).to_string().into_response();
    }
    let Some(path) = path.strip_prefix(&format!("/{ID}/resolve/")) else { return refuse("RepoNotFound") };
    let (revision, file) = path.split_once('/').unwrap();
    if revision != COMMIT {
        return refuse("RevisionNotFound");
    }
    let Some(content) = hub.files.get(file) else { return refuse("EntryNotFound") };
    let commit = ("x-repo-commit", hub.commit.clone());
    if file.ends_with(".safetensors") {
        let tag = sha256(content);
        let to = format!("{}/{tag}?signature=secret", standing.storage);
        let length = hub.claimed.unwrap_or(content.len() as u64).to_string();
        let headers = [commit, ("x-linked-etag", format!("\"{tag}\"")), ("x-linked-size", length), ("location", to)];
        return (StatusCode::FOUND, headers).into_response();
    }
    // Git's names of contents are 40 digits long, which keeps them from being taken for a SHA-256.
    let tag = sha256(content)[..40].to_owned();
    let length = content.len().to_string();
    let body = if request.method() == Method::HEAD { Body::empty() } else { Body::from(content.clone()) };
    ([commit, ("etag", format!("\"{tag}\"")), ("content-length", length)], body).into_response()
}

/// The storage.
async fn send(State(standing): State<Standing>, request: Request) -> Response {
    if let Some(failure) = note(&standing, "storage", &request) {
        return failure;
    }
    let hub = standing.hub.lock().unwrap();
    let tag = request.uri().path().trim_start_matches('/');
    let content = hub.forged.as_ref().or_else(|| hub.files.values().find(|content| sha256(content) == tag)).unwrap();
    let range = request.headers().get(header::RANGE).map(|range| range.to_str().unwrap());
    let start = range.filter(|_| !hub.ignores_ranges).map_or(0, |range| {
        range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-')).unwrap().parse().unwrap()
    });
    if start >= content.len() {
        return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
    }
    let rest = content[start..].to_vec();
    let length = (header::CONTENT_LENGTH.as_str(), rest.len().to_string());
    let part = ("content-range", format!("bytes {start}-{}/{}", content.len() - 1, content.len()));
    let body = match hub.cut {
        None => Body::from(rest),
        Some(cut) => {
            let sent = Bytes::copy_from_slice(&rest[..cut.min(rest.len())]);
            // Pending once in between, which makes the server send what it has before it meets the break.
            let broken = futures_util::stream::once(async {
                tokio::task::yield_now().await;
                Err(std::io::Error::other("cut on purpose"))
            });
            let whole = cut >= rest.len();
            let sent = futures_util::stream::iter([Ok(sent)]);
            if whole { Body::from_stream(sent) } else { Body::from_stream(sent.chain(broken)) }
        }
    };
    if start > 0 {
        (StatusCode::PARTIAL_CONTENT, [length, part], body).into_response()
    } else {
        ([length], body).into_response()
    }
}
