//! The reply of `POST /locate` as JSON; `tapline locate --json` prints the same. It renames and rounds, and decides nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

use crate::engine::{Alternative, BoxSource, Grounding, Reply, Timings};
use crate::geometry::{Normalized, Pixels, Point, Rect, Scaled, Size, Thousand};

/// The space in which a caller wants its coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SpaceName {
    /// Pixels of the whole screenshot.
    #[default]
    Pixels,
    /// Fractions of its width and height, 0 to 1.
    Normalized,
    /// Thousandths of its width and height, 0 to 1000.
    Thousand,
}

/// A number of at most six decimals; a whole one is written without a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number(pub f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rounded = (self.0 * 1e6).round() / 1e6;
        // Up to 2^53 every whole number is exact in an f64.
        if rounded.fract() == 0.0 && rounded.abs() < 9_007_199_254_740_992.0 {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
            serializer.serialize_i64(rounded as i64)
        } else {
            serializer.serialize_f64(rounded)
        }
    }
}

/// A probability to six significant digits: a product of several location tokens' may be small and still tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probability(pub f64);

impl Serialize for Probability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rounded = format!("{:.5e}", self.0).parse().unwrap_or(self.0);
        serializer.serialize_f64(rounded)
    }
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LocateResponse {
    /// The model that answered.
    pub model: String,
    /// The screenshot that was looked at.
    pub screenshot: ScreenshotBody,
    /// The space of every coordinate below.
    pub space: SpaceName,
    /// One for each command, in order.
    pub results: Vec<LocateResult>,
    /// Where the time went.
    pub timings: TimingsBody,
}

/// A screenshot by name and size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScreenshotBody {
    /// Send this as `screenshot` to ask again without sending the image.
    pub id: String,
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
}

/// The answer to one command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LocateResult {
    /// The caller's words.
    pub command: String,
    /// False when the model abstained, gave no place, or was less certain than `min_confidence`.
    pub found: bool,
    /// Where to press.
    pub point: Option<PointBody>,
    /// The element's edges.
    #[serde(rename = "box")]
    pub bounds: Option<BoxBody>,
    /// Who says so.
    pub box_source: BoxSource,
    /// Product of the probabilities of the location tokens.
    pub confidence: Option<Probability>,
    /// Further candidates, likeliest first.
    pub alternatives: Vec<AlternativeBody>,
    /// The model's answer as text.
    pub raw: String,
    /// The model's answer as ids.
    pub tokens: Vec<u32>,
    /// The constraint to location tokens changed the answer.
    pub constrained: bool,
}

/// Another place that the command might mean.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlternativeBody {
    /// Where to press.
    pub point: PointBody,
    /// The element's edges.
    #[serde(rename = "box")]
    pub bounds: Option<BoxBody>,
    /// As [`LocateResult::confidence`].
    pub confidence: Probability,
}

/// A place in the response's space.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PointBody {
    /// From the left edge.
    pub x: Number,
    /// From the top edge.
    pub y: Number,
}

/// A rectangle in the response's space.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BoxBody {
    /// Left edge.
    pub x1: Number,
    /// Top edge.
    pub y1: Number,
    /// Right edge.
    pub x2: Number,
    /// Bottom edge.
    pub y2: Number,
}

/// Milliseconds spent in each stage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TimingsBody {
    /// Receiving and taking apart the request's body.
    pub read_ms: Number,
    /// Image file to RGB.
    pub decode_ms: Number,
    /// Crop, resize, normalise and tokenise.
    pub prepare_ms: Number,
    /// Waiting for the engine.
    pub queue_ms: Number,
    /// The image encoder.
    pub vision_ms: Number,
    /// Prompt encoder and decoding.
    pub text_ms: Number,
    /// Tokens to pixels.
    pub answer_ms: Number,
    /// From arrival to reply.
    pub total_ms: Number,
}

impl LocateResponse {
    /// The reply of `model`, its coordinates in `space`.
    #[must_use]
    pub fn new(model: &str, space: SpaceName, reply: &Reply) -> Self {
        let size = reply.screenshot.size;
        let results = reply.groundings.iter().map(|grounding| LocateResult::new(grounding, space, size)).collect();
        Self {
            model: model.to_owned(),
            screenshot: ScreenshotBody { id: reply.screenshot.id.to_string(), width: size.width, height: size.height },
            space,
            results,
            timings: TimingsBody::new(&reply.timings),
        }
    }
}

impl LocateResult {
    fn new(grounding: &Grounding, space: SpaceName, size: Size) -> Self {
        Self {
            command: grounding.command.clone(),
            found: grounding.found,
            point: grounding.point.map(|point| PointBody::new(point, space, size)),
            bounds: grounding.bounds.map(|bounds| BoxBody::new(bounds, space, size)),
            box_source: grounding.box_source,
            confidence: grounding.confidence.map(Probability),
            alternatives: grounding.alternatives.iter().map(|other| AlternativeBody::new(other, space, size)).collect(),
            raw: grounding.raw.clone(),
            tokens: grounding.tokens.clone(),
            constrained: grounding.constrained,
        }
    }
}

impl AlternativeBody {
    fn new(alternative: &Alternative, space: SpaceName, size: Size) -> Self {
        Self {
            point: PointBody::new(alternative.point, space, size),
            bounds: alternative.bounds.map(|bounds| BoxBody::new(bounds, space, size)),
            confidence: Probability(alternative.confidence),
        }
    }
}

impl PointBody {
    fn new(point: Point<Pixels>, space: SpaceName, size: Size) -> Self {
        fn body<S: Scaled>(Point { x, y, .. }: Point<S>) -> PointBody {
            PointBody { x: Number(x), y: Number(y) }
        }
        match space {
            SpaceName::Pixels => body(point),
            SpaceName::Normalized => body(point.to::<Normalized>(size)),
            SpaceName::Thousand => body(point.to::<Thousand>(size)),
        }
    }
}

impl BoxBody {
    fn new(bounds: Rect<Pixels>, space: SpaceName, size: Size) -> Self {
        fn body<S: Scaled>(Rect { x1, y1, x2, y2, .. }: Rect<S>) -> BoxBody {
            BoxBody { x1: Number(x1), y1: Number(y1), x2: Number(x2), y2: Number(y2) }
        }
        match space {
            SpaceName::Pixels => body(bounds),
            SpaceName::Normalized => body(bounds.to::<Normalized>(size)),
            SpaceName::Thousand => body(bounds.to::<Thousand>(size)),
        }
    }
}

impl TimingsBody {
    fn new(timings: &Timings) -> Self {
        Self {
            read_ms: milliseconds(timings.read),
            decode_ms: milliseconds(timings.decode),
            prepare_ms: milliseconds(timings.prepare),
            queue_ms: milliseconds(timings.queue),
            vision_ms: milliseconds(timings.vision),
            text_ms: milliseconds(timings.text),
            answer_ms: milliseconds(timings.answer),
            total_ms: milliseconds(timings.total),
        }
    }
}

/// To the microsecond: what lies below is noise.
fn milliseconds(duration: Duration) -> Number {
    Number((duration.as_secs_f64() * 1e6).round() / 1e3)
}

/// The stages of a request and what they took, in the order in which it passed them.
pub(super) fn stages(timings: &Timings) -> [(&'static str, Duration); 7] {
    let durations =
        [timings.read, timings.decode, timings.prepare, timings.queue, timings.vision, timings.text, timings.answer];
    let mut stages = crate::telemetry::names::STAGES.map(|stage| (stage, Duration::ZERO));
    for (stage, duration) in stages.iter_mut().zip(durations) {
        stage.1 = duration;
    }
    stages
}

/// The value of the `Server-Timing` header.
pub(super) fn server_timing(timings: &Timings) -> String {
    let all = stages(timings).into_iter().chain([("total", timings.total)]);
    let entries: Vec<_> = all.map(|(stage, took)| format!("{stage};dur={:.3}", took.as_secs_f64() * 1e3)).collect();
    entries.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_no_point_and_others_six_decimals() {
        let text = |value| serde_json::to_string(&Number(value)).unwrap();
        assert_eq!(text(512.0), "512");
        assert_eq!(text(-0.0), "0");
        assert_eq!(text(0.1 + 0.2), "0.3");
        assert_eq!(text(1.0 / 3.0), "0.333333");
        assert_eq!(text(0.999_999_99), "1");
        assert_eq!(text(f64::NAN), "null");
        assert_eq!(text(1e300), "1e+300");
    }

    #[test]
    fn the_header_names_every_stage() {
        let timings =
            Timings { decode: Duration::from_micros(1500), total: Duration::from_millis(2), ..Timings::default() };
        assert_eq!(
            server_timing(&timings),
            "read;dur=0.000, decode;dur=1.500, prepare;dur=0.000, queue;dur=0.000, vision;dur=0.000, text;dur=0.000, \
             answer;dur=0.000, total;dur=2.000"
        );
    }
}
