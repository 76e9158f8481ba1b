//! The one type that turns faults into HTTP: a stable code, a status, and what the caller can do. It decides nothing about
//! requests.

use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::engine::{EngineError, LocateError};
use crate::prompt::PromptError;
use crate::schedule::AdmissionError;
use crate::screenshot::DecodeError;
use crate::telemetry::{Outcome, Reason};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:ident, $outcome:ident;)+) => {
        /// What went wrong, in one stable word. Codes are never renamed and never change their status.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $($(#[$doc])* $name),+
        }

        impl Code {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// As it stands in `error.code`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// The status it is sent with.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status),+ }
            }

            /// How a request that ends like this is counted.
            #[must_use]
            pub const fn outcome(self) -> Outcome {
                match self { $(Self::$name => Outcome::$outcome),+ }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    MalformedJson = "malformed_json", BAD_REQUEST, Invalid;
    /// A field has a value that it cannot have, or fields contradict each other.
    InvalidRequest = "invalid_request", BAD_REQUEST, Invalid;
    /// There is no such field.
    UnknownField = "unknown_field", BAD_REQUEST, Invalid;
    /// `image` is not base64.
    InvalidBase64 = "invalid_base64", BAD_REQUEST, Invalid;
    /// No image was sent and no screenshot named.
    ImageMissing = "image_missing", BAD_REQUEST, Invalid;
    /// The format is known, the content is broken.
    ImageCorrupt = "image_corrupt", BAD_REQUEST, Invalid;
    /// No bytes, or no pixels.
    ImageEmpty = "image_empty", BAD_REQUEST, Invalid;
    /// No such model is served here.
    UnknownModel = "unknown_model", NOT_FOUND, Invalid;
    /// The screenshot is not, or no longer, held.
    UnknownScreenshot = "unknown_screenshot", NOT_FOUND, Invalid;
    /// No such route.
    NotFound = "not_found", NOT_FOUND, Invalid;
    /// The route has other methods.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, Invalid;
    /// More pixels than allowed.
    ImageTooLarge = "image_too_large", PAYLOAD_TOO_LARGE, TooLarge;
    /// More bytes than allowed.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, TooLarge;
    /// Not an image format that is read.
    UnsupportedFormat = "unsupported_format", UNSUPPORTED_MEDIA_TYPE, Invalid;
    /// Not one of the three forms of a request.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, Invalid;
    /// A command without words.
    CommandEmpty = "command_empty", UNPROCESSABLE_ENTITY, Invalid;
    /// A command longer than the model takes.
    CommandTooLong = "command_too_long", UNPROCESSABLE_ENTITY, Invalid;
    /// More commands than one request may have.
    TooManyCommands = "too_many_commands", UNPROCESSABLE_ENTITY, Invalid;
    /// The region covers nothing of the screenshot.
    InvalidRegion = "invalid_region", UNPROCESSABLE_ENTITY, Invalid;
    /// No room at present.
    Overloaded = "overloaded", TOO_MANY_REQUESTS, Overloaded;
    /// The model is not loaded yet.
    Loading = "loading", SERVICE_UNAVAILABLE, Unavailable;
    /// The server is on its way out.
    Draining = "draining", SERVICE_UNAVAILABLE, Unavailable;
    /// The engine cannot answer.
    EngineFailed = "engine_failed", SERVICE_UNAVAILABLE, Unavailable;
    /// Not answered in time.
    DeadlineExceeded = "deadline_exceeded", GATEWAY_TIMEOUT, Deadline;
    /// A fault of the server itself.
    Internal = "internal", INTERNAL_SERVER_ERROR, Internal;
}

/// An answer that is an error.
#[derive(Debug, Clone)]
pub struct ApiError {
    /// What went wrong.
    pub code: Code,
    /// What failed, and on which input.
    pub message: String,
    /// What the caller can do about it.
    pub hint: Cow<'static, str>,
    /// When trying again is worth it.
    pub retry_after: Option<Duration>,
    /// What is written to the log and not told to the caller.
    pub cause: Option<String>,
    /// Set when the request was refused for the state of the server, before anything was done for it.
    pub refused: Option<Reason>,
    /// How the request is counted.
    pub outcome: Outcome,
}

/// What the log line about a response needs; travels as an extension of the response.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub code: Code,
    pub cause: String,
}

#[derive(Serialize)]
struct Body<'a> {
    error: Content<'a>,
}

#[derive(Serialize)]
struct Content<'a> {
    code: &'static str,
    message: &'a str,
    hint: &'a str,
}

impl ApiError {
    /// An error with a code, what failed, and what to do.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: hint.into(),
            retry_after: None,
            cause: None,
            refused: None,
            outcome: code.outcome(),
        }
    }

    /// A contradiction or an impossible value in the request.
    #[must_use]
    pub fn invalid(message: impl Into<String>, hint: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidRequest, message, hint)
    }

    /// A fault of the server itself, with what the log says about it.
    #[must_use]
    pub fn internal(cause: impl Into<String>) -> Self {
        let hint = "try once more; if it stays, report the `x-request-id` of this response";
        Self { cause: Some(cause.into()), ..Self::new(Code::Internal, "the server failed on this request", hint) }
    }

    fn refused(self, reason: Reason) -> Self {
        Self { refused: Some(reason), ..self }
    }

    fn retry_after(self, after: Duration) -> Self {
        Self { retry_after: Some(after), ..self }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let content = Content { code: self.code.as_str(), message: &self.message, hint: &self.hint };
        let mut response = (self.code.status(), Json(Body { error: content })).into_response();
        if let Some(after) = self.retry_after {
            // The header has whole seconds, and 0 would mean at once.
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        let cause = self.cause.unwrap_or(self.message);
        response.extensions_mut().insert(Fault { code: self.code, cause });
        response
    }
}

impl From<LocateError> for ApiError {
    fn from(error: LocateError) -> Self {
        match error {
            LocateError::Decode(error) => error.into(),
            LocateError::Prompt(error) => error.into(),
            LocateError::Admission(error) => error.into(),
            LocateError::Engine(error) => error.into(),
            LocateError::UnknownScreenshot { .. } => Self::new(
                Code::UnknownScreenshot,
                error.to_string(),
                "send the image itself; the reply gives its id again",
            ),
            LocateError::InvalidRegion { .. } => Self::new(
                Code::InvalidRegion,
                error.to_string(),
                "give `region` in pixels of the whole screenshot, whatever `space` the answer is asked in",
            ),
        }
    }
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> Self {
        let (code, hint) = match &error {
            DecodeError::Empty => (Code::ImageEmpty, "send the bytes of a PNG, JPEG, WebP, BMP or GIF file".into()),
            DecodeError::NoPixels { .. } => (Code::ImageEmpty, "send an image of at least one pixel".into()),
            DecodeError::UnsupportedFormat => (
                Code::UnsupportedFormat,
                "convert the image to one of these formats, for a screenshot best to PNG".into(),
            ),
            DecodeError::TooManyPixels { limit, .. } => (
                Code::ImageTooLarge,
                Cow::Owned(format!("send a screenshot of at most {limit} pixels (width times height)")),
            ),
            DecodeError::Corrupt { .. } => {
                (Code::ImageCorrupt, "check that the file opens in an image viewer and was sent whole".into())
            }
        };
        // It may quote a decoder, whose sentences end with a full stop.
        Self::new(code, error.to_string().trim_end_matches('.'), hint)
    }
}

impl From<PromptError> for ApiError {
    fn from(error: PromptError) -> Self {
        let (code, hint) = match &error {
            PromptError::EmptyCommand => (Code::CommandEmpty, "say what to find, such as `the search field`"),
            PromptError::CommandTooLong { .. } | PromptError::CommandTooLarge { .. } => {
                (Code::CommandTooLong, "say it shorter: one element, in one sentence")
            }
            PromptError::Tokenizer { .. } => (Code::InvalidRequest, "say it in plain words"),
        };
        Self::new(code, error.to_string(), hint)
    }
}

impl From<AdmissionError> for ApiError {
    fn from(error: AdmissionError) -> Self {
        let message = error.to_string();
        match error {
            AdmissionError::Overloaded { what, retry_after, .. } => {
                let reason = match what {
                    "requests" => Reason::Permits,
                    "pixels" => Reason::Pixels,
                    "body bytes" => Reason::Bytes,
                    _ => Reason::Decode,
                };
                Self::new(
                    Code::Overloaded,
                    message,
                    "try again after the seconds in `retry-after`, or ask another replica",
                )
                .retry_after(retry_after)
                .refused(reason)
            }
            AdmissionError::DeadlineExceeded { .. } => Self::new(
                Code::DeadlineExceeded,
                message,
                "ask with a longer `timeout_ms`, or send fewer requests at a time",
            ),
            AdmissionError::ShuttingDown => {
                Self::new(Code::Draining, message, "ask another replica, or try again soon")
                    .retry_after(Duration::from_secs(1))
                    .refused(Reason::Draining)
            }
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let cause = error.to_string();
        match error {
            EngineError::Loading { .. } => {
                Self::new(Code::Loading, cause, "wait until `GET /health/ready` answers 200, then ask again")
                    .retry_after(Duration::from_secs(1))
                    .refused(Reason::Loading)
            }
            // What a device says is for the operator, who finds it in the log.
            EngineError::Stopped { .. } | EngineError::Stalled { .. } => Self {
                cause: Some(cause),
                ..Self::new(
                    Code::EngineFailed,
                    "the engine of this model has stopped",
                    "ask another replica; the server's log and `GET /health/ready` say why it stopped",
                )
                .refused(Reason::Faulted)
            },
            EngineError::Device { .. } => Self {
                cause: Some(cause),
                ..Self::new(
                    Code::EngineFailed,
                    "the engine failed on this request",
                    "try once more; if it stays, report the `x-request-id` of this response",
                )
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_words() {
        for (index, code) in Code::ALL.iter().enumerate() {
            assert!(
                code.as_str().bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
            );
            assert!(Code::ALL[index + 1..].iter().all(|other| other.as_str() != code.as_str()));
            assert!(code.status().is_client_error() || code.status().is_server_error());
        }
    }
}
