//! From the fields of a request to what an engine is asked: defaults, ranges, and contradictions. It reads no body.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::App;
use super::error::{ApiError, Code};
use super::fields::{Fields, RegionField};
use super::image_text;
use super::response::SpaceName;
use crate::engine::{self, Handle, ImageSource};
use crate::geometry::{Pixels, Rect};
use crate::prompt::PromptError;

/// A checked request, and whom to ask.
#[derive(Debug)]
pub(super) struct LocateRequest {
    pub engine: Handle,
    pub space: SpaceName,
    pub request: engine::Request,
}

impl LocateRequest {
    /// Checks the fields of a request that arrived at `arrived`; `upload` is an image that came beside them.
    ///
    /// # Errors
    /// The first thing that is wrong; cheap checks come before the image is looked at.
    pub(super) fn new(app: &App, fields: Fields, upload: Option<Bytes>, arrived: Instant) -> Result<Self, ApiError> {
        let options = app.options();
        let engine = app.engine(fields.model.as_deref())?.clone();
        let commands = commands(fields.command, fields.commands, options.max_commands)?;
        let alternatives = fields.alternatives.unwrap_or(0);
        if alternatives > options.max_alternatives {
            return Err(ApiError::invalid(
                format!("`alternatives` is {alternatives}"),
                format!("ask for 0 to {}", options.max_alternatives),
            ));
        }
        let min_confidence = fields.min_confidence.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&min_confidence) {
            return Err(ApiError::invalid(
                format!("`min_confidence` is {min_confidence}"),
                "send a number from 0 to 1",
            ));
        }
        let timeout = timeout(app, fields.timeout_ms)?;
        let region = fields.region.map(region).transpose()?;
        let image = image(fields.image, fields.screenshot.as_deref(), upload)?;
        let request = engine::Request {
            region,
            want: fields.want.unwrap_or_default(),
            decoding: fields.decoding.or(options.decoding),
            constrained: !fields.unconstrained.unwrap_or(options.unconstrained),
            alternatives,
            min_confidence,
            timeout,
            arrived,
            ..engine::Request::new(image, commands)
        };
        Ok(Self { engine, space: fields.space.unwrap_or_default(), request })
    }
}

/// The time a request gives, within the limit.
pub(super) fn timeout(app: &App, milliseconds: Option<u64>) -> Result<Duration, ApiError> {
    let options = app.options();
    let Some(milliseconds) = milliseconds else { return Ok(options.default_timeout.min(options.max_timeout)) };
    let timeout = Duration::from_millis(milliseconds);
    if timeout.is_zero() || timeout > options.max_timeout {
        return Err(ApiError::invalid(
            format!("`timeout_ms` is {milliseconds}"),
            format!("give 1 to {} ms", options.max_timeout.as_millis()),
        ));
    }
    Ok(timeout)
}

fn commands(one: Option<String>, several: Option<Vec<String>>, limit: usize) -> Result<Vec<String>, ApiError> {
    let commands = match (one, several) {
        (Some(command), None) => vec![command],
        (None, Some(commands)) => commands,
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid("both `command` and `commands` are given", "send one of the two"));
        }
        (None, None) => Vec::new(),
    };
    if commands.is_empty() {
        let hint = "say in `command` what to find, such as `the search field`";
        return Err(ApiError::new(Code::CommandEmpty, "there is no command", hint));
    }
    if commands.len() > limit {
        return Err(ApiError::new(
            Code::TooManyCommands,
            format!("there are {} commands, more than the limit of {limit}", commands.len()),
            "send the screenshot's id with the rest of the commands in a second request",
        ));
    }
    // The engine refuses these too, but only after the image has been received and read.
    if let Some(index) = commands.iter().position(|command| command.trim().is_empty()) {
        let mut error = ApiError::from(PromptError::EmptyCommand);
        if commands.len() > 1 {
            error.message = format!("command {} of {} is empty", index + 1, commands.len());
        }
        return Err(error);
    }
    Ok(commands)
}

fn region(RegionField { x1, y1, x2, y2 }: RegionField) -> Result<Rect<Pixels>, ApiError> {
    // Also false for what is not a number.
    if x1 < x2 && y1 < y2 && [x1, y1, x2, y2].iter().all(|edge| edge.is_finite()) {
        return Ok(Rect::new(x1, y1, x2, y2));
    }
    Err(ApiError::new(
        Code::InvalidRegion,
        format!("the region from ({x1}, {y1}) to ({x2}, {y2}) is empty"),
        "give `x1` < `x2` and `y1` < `y2`, in pixels of the whole screenshot",
    ))
}

fn image(text: Option<String>, id: Option<&str>, upload: Option<Bytes>) -> Result<ImageSource, ApiError> {
    match (text, id, upload) {
        (Some(text), None, None) => {
            let file = image_text::decode(&text)?;
            Ok(ImageSource::Bytes(file.into()))
        }
        (None, Some(id), None) => {
            let id = id.parse().map_err(|error: engine::request::InvalidScreenshotId| {
                ApiError::invalid(
                    format!("`screenshot` is wrong: {error}"),
                    "send the `screenshot.id` of an earlier reply",
                )
            })?;
            Ok(ImageSource::Stored(id))
        }
        (None, None, Some(file)) => Ok(ImageSource::Bytes(file)),
        (None, None, None) => Err(ApiError::new(
            Code::ImageMissing,
            "there is no screenshot",
            "send the image in `image`, or in `screenshot` the id that an earlier reply gave",
        )),
        _ => Err(ApiError::invalid("there are two screenshots", "send one image, or one screenshot id")),
    }
}
