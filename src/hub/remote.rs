//! The hub over HTTP: what a file is, what a branch points to, and a file's bytes from any place on. It writes nothing.

use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, ETAG, LOCATION, RANGE};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::Deserialize;

use super::{HubError, HubOptions};

/// Redirects followed for one request.
const MAX_REDIRECTS: usize = 10;
/// The header by which the hub names content that its storage holds.
const LINKED_ETAG: &str = "x-linked-etag";
/// Most bytes of an answer that is read into memory.
const MAX_JSON_BYTES: usize = 16 << 20;

/// A hub.
#[derive(Debug)]
pub(super) struct Remote<'a> {
    client: Client,
    options: &'a HubOptions,
}

/// What the hub says about a file without sending it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Names the content: its SHA-256 for large files, git's SHA-1 for small ones.
    pub etag: String,
    /// Length, where it is told.
    pub bytes: Option<u64>,
    /// The commit that the file was found in, where it is told.
    pub commit: Option<String>,
}

impl Metadata {
    /// The content's SHA-256, when the tag is one.
    pub fn sha256(&self) -> Option<&str> {
        is_sha256(&self.etag).then_some(self.etag.as_str())
    }
}

/// 64 hexadecimal digits.
pub(super) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What a branch, tag or commit stands for.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Revision {
    /// The commit.
    pub sha: String,
    /// The files in it.
    #[serde(default)]
    pub siblings: Vec<Sibling>,
}

/// A file of a revision.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Sibling {
    /// Path in the repository.
    pub rfilename: String,
}

impl<'a> Remote<'a> {
    /// A connection pool for this hub.
    pub fn new(options: &'a HubOptions) -> Result<Self, HubError> {
        let client = Client::builder()
            .user_agent(concat!("tapline/", env!("CARGO_PKG_VERSION")))
            // Followed by hand: the hub's own headers come with the first answer, and the token must stay with the hub.
            .redirect(Policy::none())
            .connect_timeout(Duration::from_secs(15))
            .read_timeout(Duration::from_secs(30))
            .build()
            .map_err(|error| HubError::Network { url: options.endpoint.clone(), message: root(&error) })?;
        Ok(Self { client, options })
    }

    /// The address of a file.
    pub fn file_url(&self, id: &str, revision: &str, file: &str) -> Result<Url, HubError> {
        self.url(&format!("{id}/resolve/{}/{file}", revision.replace('/', "%2F")))
    }

    fn url(&self, path: &str) -> Result<Url, HubError> {
        let url = format!("{}/{path}", self.options.endpoint);
        Url::parse(&url).map_err(|error| HubError::Network { url, message: error.to_string() })
    }

    /// What a branch, tag or commit stands for.
    pub async fn revision(&self, id: &str, revision: &str) -> Result<Revision, HubError> {
        let url = self.url(&format!("api/models/{id}/revision/{}", revision.replace('/', "%2F")))?;
        let what = format!("revision `{revision}`");
        let mut answer = self.send(Method::GET, url.clone(), None, id, &what).await?;
        let mut body = Vec::new();
        while let Some(bytes) = answer.chunk().await.map_err(|error| interrupted(&url, &error))? {
            body.extend_from_slice(&bytes);
            if body.len() > MAX_JSON_BYTES {
                return Err(HubError::Reply { url: shown(&url), message: "it is too long".to_owned() });
            }
        }
        serde_json::from_slice(&body).map_err(|error| HubError::Reply { url: shown(&url), message: error.to_string() })
    }

    /// What the hub says about a file.
    pub async fn metadata(&self, id: &str, revision: &str, file: &str) -> Result<Metadata, HubError> {
        let url = self.file_url(id, revision, file)?;
        let answer = self.send(Method::HEAD, url.clone(), None, id, &format!("file `{file}`")).await?;
        let text = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let etag = text(LINKED_ETAG).or_else(|| text(ETAG.as_str())).unwrap_or_default();
        let etag = etag.trim_start_matches("W/").trim_matches('"').to_owned();
        // It becomes a file's name.
        if etag.is_empty() || etag.len() > 128 || !etag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            return Err(HubError::Reply { url: shown(&url), message: format!("the ETag is `{etag}`") });
        }
        let bytes = text("x-linked-size").or_else(|| text(CONTENT_LENGTH.as_str())).and_then(|text| text.parse().ok());
        Ok(Metadata { etag, bytes, commit: text("x-repo-commit") })
    }

    /// The bytes of a file from `start` on. The answer's status says whether the hub heeded `start`.
    pub async fn bytes(&self, id: &str, url: Url, file: &str, start: u64) -> Result<Response, HubError> {
        self.send(Method::GET, url, Some(start).filter(|&start| start > 0), id, &format!("file `{file}`")).await
    }

    async fn send(
        &self,
        method: Method,
        mut url: Url,
        start: Option<u64>,
        id: &str,
        what: &str,
    ) -> Result<Response, HubError> {
        let home = Url::parse(&self.options.endpoint).ok();
        for _ in 0..=MAX_REDIRECTS {
            let mut request = self.client.request(method.clone(), url.clone()).header(ACCEPT_ENCODING, "identity");
            if let Some(start) = start {
                request = request.header(RANGE, format!("bytes={start}-"));
            }
            let at_home = home.as_ref().is_some_and(|home| home.origin() == url.origin());
            if let Some(token) = self.options.token.as_ref().filter(|_| at_home) {
                request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
            }
            let response = request.send().await.map_err(|error| interrupted(&url, &error))?;
            let status = response.status();
            if !status.is_redirection() {
                let refused = !(status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE && start.is_some());
                if refused {
                    return Err(self.refusal(&response, &url, id, what, at_home));
                }
                return Ok(response);
            }
            // The storage behind the hub is not asked about a file that the hub has just described.
            if method == Method::HEAD && response.headers().contains_key(LINKED_ETAG) {
                return Ok(response);
            }
            let next = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = next
                .and_then(|next| url.join(next).ok())
                .ok_or_else(|| HubError::Reply { url: shown(&url), message: "it points nowhere".to_owned() })?;
            if url.scheme() == "https" && next.scheme() != "https" {
                let message = format!("it points to {}, which is not encrypted", shown(&next));
                return Err(HubError::Reply { url: shown(&url), message });
            }
            url = next;
        }
        Err(HubError::Reply { url: shown(&url), message: "it points around in circles".to_owned() })
    }

    fn refusal(&self, response: &Response, url: &Url, id: &str, what: &str, at_home: bool) -> HubError {
        let status = response.status().as_u16();
        let code = response.headers().get("x-error-code").and_then(|code| code.to_str().ok()).unwrap_or_default();
        match (status, code) {
            (404, "RepoNotFound") => HubError::NotFound { id: id.to_owned(), what: "repository".to_owned() },
            (404, "RevisionNotFound") => HubError::NotFound { id: id.to_owned(), what: "such revision".to_owned() },
            (404, _) => HubError::NotFound { id: id.to_owned(), what: what.to_owned() },
            // A refusal by the storage behind the hub is no matter of tokens.
            (401 | 403, _) if at_home => {
                HubError::Denied { id: id.to_owned(), status, token: self.options.token.is_some() }
            }
            _ => HubError::Http { url: shown(url), status },
        }
    }
}

/// The connection failed. What the library says about it names the whole address, signatures included, so only the causes
/// are kept.
pub(super) fn interrupted(url: &Url, error: &reqwest::Error) -> HubError {
    HubError::Network { url: shown(url), message: root(error) }
}

fn root(error: &reqwest::Error) -> String {
    let mut causes = Vec::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    match (causes.pop(), error.is_timeout()) {
        (_, true) => "it takes too long".to_owned(),
        (Some(root), _) => root,
        (None, _) => "no answer".to_owned(),
    }
}

/// An address without its query, which may hold a signature.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let _secret = url.set_password(None);
    url.to_string()
}
