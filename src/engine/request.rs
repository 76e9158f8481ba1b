//! What a caller asks of an engine, and what it gets back: words, pixels and durations, no tensors.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::geometry::{Pixels, Point, Rect, Size};
use crate::models::manifest::Strategy;

/// One screenshot and the commands to find on it.
#[derive(Debug, Clone)]
pub struct Request {
    /// The screenshot.
    pub image: ImageSource,
    /// Answered in order, with one encoding of the image. At least one.
    pub commands: Vec<String>,
    /// Search only here. Answers stay in pixels of the whole screenshot.
    pub region: Option<Rect<Pixels>>,
    /// What the caller is after.
    pub want: Want,
    /// How to decode; `None`: as the model's manifest or generation config says.
    pub decoding: Option<Strategy>,
    /// Allow only location tokens after the action prefix, so that every answer parses.
    pub constrained: bool,
    /// How many further candidates to give beside the answer.
    pub alternatives: usize,
    /// Answers less certain than this are reported as not found.
    pub min_confidence: f64,
    /// The time the caller gives; an answer after it is an error.
    pub timeout: Duration,
    /// When the request arrived: the start of `timeout` and of [`Timings::total`].
    pub arrived: Instant,
}

impl Request {
    /// A request with the defaults of `/locate`.
    #[must_use]
    pub fn new(image: ImageSource, commands: Vec<String>) -> Self {
        Self {
            image,
            commands,
            region: None,
            want: Want::Point,
            decoding: None,
            constrained: true,
            alternatives: 0,
            min_confidence: 0.0,
            timeout: Duration::from_secs(60),
            arrived: Instant::now(),
        }
    }
}

/// Where the screenshot comes from.
#[derive(Debug, Clone)]
pub enum ImageSource {
    /// An image file, its format told by its bytes.
    Bytes(Bytes),
    /// A screenshot sent before, by the id its reply gave.
    Stored(ScreenshotId),
}

/// What the caller wants to have in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Want {
    /// A place to press.
    #[default]
    Point,
    /// The element's box, where the model gives one.
    Box,
}

/// SHA-256 of a screenshot's file, the first 16 bytes of it: names its content, so equal files have equal ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScreenshotId(pub [u8; 16]);

impl ScreenshotId {
    /// The id of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::{Digest, Sha256};
        let digest = Sha256::digest(bytes);
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self(id)
    }
}

impl fmt::Display for ScreenshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ScreenshotId {
    type Err = InvalidScreenshotId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut id = [0; 16];
        if text.len() != 32 || !text.is_ascii() {
            return Err(InvalidScreenshotId);
        }
        for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| InvalidScreenshotId)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| InvalidScreenshotId)?;
        }
        Ok(Self(id))
    }
}

/// The text is not an id that a reply gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a screenshot id is 32 hexadecimal digits")]
pub struct InvalidScreenshotId;

/// The answer to a [`Request`].
#[derive(Debug, Clone)]
pub struct Reply {
    /// The screenshot that was looked at.
    pub screenshot: ScreenshotInfo,
    /// One for each command, in order.
    pub groundings: Vec<Grounding>,
    /// Where the time went.
    pub timings: Timings,
}

/// A screenshot as the server knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenshotInfo {
    /// Under which it can be asked about again without sending it.
    pub id: ScreenshotId,
    /// Original size.
    pub size: Size,
}

/// The answer to one command.
#[derive(Debug, Clone, PartialEq)]
pub struct Grounding {
    /// The caller's words.
    pub command: String,
    /// False when the model abstained, gave no place, or was less certain than asked.
    pub found: bool,
    /// Where to press.
    pub point: Option<Point<Pixels>>,
    /// The element's edges.
    pub bounds: Option<Rect<Pixels>>,
    /// Who says so.
    pub box_source: BoxSource,
    /// Product of the probabilities of the location tokens, from the softmax over the whole vocabulary before any rule or
    /// constraint. `None` when the answer holds no location tokens.
    pub confidence: Option<f64>,
    /// Further candidates, likeliest first.
    pub alternatives: Vec<Alternative>,
    /// The answer as text, special tokens kept, the start token left out.
    pub raw: String,
    /// The answer as ids, the start token included.
    pub tokens: Vec<u32>,
    /// The constraint to location tokens changed the answer.
    pub constrained: bool,
}

/// Another place that the command might mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alternative {
    /// Where to press.
    pub point: Point<Pixels>,
    /// The element's edges, where the model gives boxes.
    pub bounds: Option<Rect<Pixels>>,
    /// As [`Grounding::confidence`].
    pub confidence: f64,
}

/// Where a box comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxSource {
    /// The locator's own answer.
    Model,
    /// There is none.
    None,
}

/// Time spent in each stage of one request. A stage that was not needed is zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    /// Receiving and taking apart the request's body. Filled in by the server.
    pub read: Duration,
    /// Image file to RGB.
    pub decode: Duration,
    /// Crop, resize, normalise and tokenise.
    pub prepare: Duration,
    /// Waiting for the engine.
    pub queue: Duration,
    /// The image encoder, for the whole batch.
    pub vision: Duration,
    /// Prompt encoder and decoding, for the whole batch.
    pub text: Duration,
    /// Tokens to pixels.
    pub answer: Duration,
    /// From arrival to reply.
    pub total: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn screenshot_ids_survive_being_written_down() {
        let id = ScreenshotId::of(b"a screenshot");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_ne!(id, ScreenshotId::of(b"another"));
        for bad in ["", "xyz", &"0".repeat(33), &"é".repeat(16), &"g".repeat(32)] {
            assert_eq!(bad.parse::<ScreenshotId>(), Err(InvalidScreenshotId));
        }
    }
}
