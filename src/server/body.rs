//! A request's body, in any of its three forms: received within the limits, and taken apart off the async runtime when it is
//! large.

use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, FromRequest as _, Multipart, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Uri, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;

use super::App;
use super::error::{ApiError, Code};
use super::fields::{Fields, shown};
use super::request::{LocateRequest, timeout};
use crate::schedule::{AdmissionError, Permit};
use crate::screenshot::{DecodeError, Limits, sniff_prefix};
use crate::telemetry::Outcome;

/// Bodies up to this size are taken apart where they arrive: 64 kB of base64 cost about 50 µs, a thread hop not much less.
const INLINE: usize = 64 << 10;
/// How long the rest of a refused body is received and thrown away.
const LINGER: Duration = Duration::from_secs(2);

/// How a request says what it says.
#[derive(Debug)]
enum Form {
    /// Everything in one JSON object.
    Json,
    /// Part `image` and part `request`.
    Multipart,
    /// The body is the image, the rest stands in the query.
    Image(Box<Fields>),
}

impl Form {
    fn of(parts: &Parts) -> Result<Self, ApiError> {
        let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if kind.starts_with("image/") {
            let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
                .map_err(|error| ApiError::invalid(error.to_string(), "send `name=value` pairs, percent-encoded"))?;
            return Ok(Self::Image(Box::new(Fields::from_query(query.0)?)));
        }
        if let Some(query) = parts.uri.query().filter(|query| !query.is_empty()) {
            let first = query.split(['=', '&']).next().unwrap_or_default();
            return Err(ApiError::invalid(
                format!("the query parameter `{}` is not read with this content type", shown(first)),
                "put it into the JSON object; query parameters go with a raw `image/*` body",
            ));
        }
        match kind.as_str() {
            "application/json" => Ok(Self::Json),
            "multipart/form-data" => Ok(Self::Multipart),
            other => {
                let message = match other {
                    "" => "there is no content type".to_owned(),
                    other => format!("the content type `{}` is not taken", shown(other)),
                };
                let hint = "send `application/json`, `multipart/form-data` or the image itself as `image/png`";
                Err(ApiError::new(Code::UnsupportedMediaType, message, hint))
            }
        }
    }
}

/// Receives the body of a request and checks what it says. `body` keeps what was not received.
///
/// # Errors
/// The first thing that is wrong, as early as it can be told.
pub(super) async fn receive(
    app: &App,
    parts: &Parts,
    body: &mut Body,
    permit: &mut Permit,
    arrived: Instant,
) -> Result<LocateRequest, ApiError> {
    let limit = app.options().body_bytes;
    let declared = declared_length(&parts.headers);
    if declared.is_some_and(|bytes| bytes > limit) {
        return Err(too_large(limit));
    }
    let form = Form::of(parts)?;
    let mut look = Look::Nowhere;
    let mut patience = timeout(app, None)?;
    if let Form::Image(fields) = &form {
        app.engine(fields.model.as_deref())?;
        patience = timeout(app, fields.timeout_ms)?;
        look = Look::At { length: 1, limits: app.options().image };
    }
    if let Some(bytes) = declared {
        permit.hold_bytes(bytes)?;
    }
    let receiving = read(body, declared, limit, permit, look);
    let bytes = tokio::time::timeout_at((arrived + patience).into(), receiving)
        .await
        .map_err(|_| AdmissionError::DeadlineExceeded { timeout: patience })??;

    let (length, headers) = (bytes.len(), parts.headers.clone());
    let job = take_apart(app.clone(), form, headers, bytes, arrived);
    if length <= INLINE {
        return job.await;
    }
    // The job has all it waits for in memory: it never gives the thread back before it is done.
    let runtime = tokio::runtime::Handle::current();
    let done = app.pool().run(move || runtime.block_on(job)).await?;
    done.unwrap_or_else(|| Err(ApiError::internal("taking apart a body panicked")))
}

async fn take_apart(
    app: App,
    form: Form,
    headers: HeaderMap,
    bytes: Bytes,
    arrived: Instant,
) -> Result<LocateRequest, ApiError> {
    match form {
        Form::Json => {
            let fields = Fields::from_json(&bytes)?;
            drop(bytes);
            LocateRequest::new(&app, fields, None, arrived)
        }
        Form::Multipart => {
            let (fields, image) = multipart(headers, bytes).await?;
            LocateRequest::new(&app, fields, image, arrived)
        }
        Form::Image(fields) => LocateRequest::new(&app, *fields, Some(bytes), arrived),
    }
}

async fn multipart(headers: HeaderMap, bytes: Bytes) -> Result<(Fields, Option<Bytes>), ApiError> {
    const HINT: &str = "send one part `image` with the file and one part `request` with the other fields as JSON";
    let mut request = Request::new(Body::from(bytes));
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (Method::POST, Uri::default(), headers);
    // The limit was kept while the body was received.
    DefaultBodyLimit::disable().apply(&mut request);
    let broken = |message: String| ApiError::invalid(format!("the multipart body is broken: {message}"), HINT);
    let mut parts = Multipart::from_request(request, &()).await.map_err(|error| broken(error.body_text()))?;
    let (mut image, mut fields) = (None, None);
    while let Some(part) = parts.next_field().await.map_err(|error| broken(error.body_text()))? {
        let name = part.name().unwrap_or_default().to_owned();
        let content = part.bytes().await.map_err(|error| broken(error.body_text()))?;
        let twice = match name.as_str() {
            "image" => image.replace(content).is_some(),
            "request" => fields.replace(Fields::from_json(&content)?).is_some(),
            other => {
                let message = format!("there is no part `{}`", shown(other));
                return Err(ApiError::new(Code::UnknownField, message, HINT));
            }
        };
        if twice {
            return Err(ApiError::invalid(format!("there are two parts `{name}`"), HINT));
        }
    }
    let fields = fields.ok_or_else(|| ApiError::invalid("there is no part `request`", HINT))?;
    Ok((fields, image))
}

/// Whether to look for an image's header in a body that is still arriving.
enum Look {
    Nowhere,
    /// Once this many bytes are there.
    At {
        length: usize,
        limits: Limits,
    },
}

impl Look {
    fn at(&mut self, received: &[u8]) -> Result<(), DecodeError> {
        match self {
            Self::At { length, limits } if received.len() >= *length => {
                *self = match sniff_prefix(received, limits)? {
                    Some(_) => Self::Nowhere,
                    // Each look starts over, so the next one waits for twice as much.
                    None => Self::At { length: received.len() * 2, limits: *limits },
                };
                Ok(())
            }
            Self::At { .. } | Self::Nowhere => Ok(()),
        }
    }
}

async fn read(
    body: &mut Body,
    declared: Option<u64>,
    limit: u64,
    permit: &mut Permit,
    mut look: Look,
) -> Result<Bytes, ApiError> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.map_err(|error| gone(&error))?.into_data() else { continue };
        let length = (first.len() + all.len()) as u64 + chunk.len() as u64;
        if length > limit {
            return Err(too_large(limit));
        }
        if declared.is_none() {
            permit.hold_bytes(chunk.len() as u64)?;
        }
        if first.is_empty() && all.is_empty() {
            // Most bodies of one chunk stay where they are.
            first = chunk;
            look.at(&first)?;
            continue;
        }
        if all.is_empty() {
            let expected = declared.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default();
            all.reserve(expected.max(first.len() + chunk.len()));
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&chunk);
        look.at(&all)?;
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// The caller went away before the body was there; nobody reads this error.
fn gone(error: &axum::Error) -> ApiError {
    ApiError {
        outcome: Outcome::Cancelled,
        ..ApiError::invalid(format!("the body ended early: {error}"), "send the whole body")
    }
}

fn too_large(limit: u64) -> ApiError {
    ApiError::new(
        Code::BodyTooLarge,
        format!("the body has more than the limit of {limit} bytes"),
        "send a smaller image: PNG or WebP rather than BMP, and the file itself rather than base64",
    )
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Receives the rest of a refused body for a while and throws it away. Closing at once would reset the connection, and a
/// client that is still sending would see that instead of the answer.
pub(super) fn discard(parts: &Parts, mut body: Body) {
    // Who expects `100-continue` sends nothing before it is told to, and asking for the body would tell it.
    if parts.headers.contains_key(header::EXPECT) || body.is_end_stream() {
        return;
    }
    tokio::spawn(tokio::time::timeout(LINGER, async move { while let Some(Ok(_)) = body.frame().await {} }));
}
