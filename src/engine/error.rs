//! Why an engine gave no answer.

use std::sync::Arc;
use std::time::Duration;

use crate::prompt::PromptError;
use crate::schedule::AdmissionError;
use crate::screenshot::DecodeError;

/// A fault of the engine: not the caller's, and not cured by changing the request.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model is not loaded yet. Try again in a moment.
    #[error("the model `{model}` is still loading")]
    Loading {
        /// Its name.
        model: String,
    },
    /// A computation failed on the device.
    #[error("the device failed: {message}")]
    Device {
        /// What the device said.
        message: String,
    },
    /// A step has been running for longer than any step may.
    #[error("the engine has not finished a step for {} s", since.as_secs())]
    Stalled {
        /// How long.
        since: Duration,
    },
    /// The engine has ended and answers nobody any more.
    #[error("the engine has stopped: {cause}")]
    Stopped {
        /// What ended it.
        cause: Arc<str>,
    },
}

/// Why [`crate::engine::Handle::locate`] gave no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LocateError {
    /// The screenshot cannot be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The command cannot be a prompt.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// There is no room, or no time left.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    /// The engine cannot answer.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The screenshot with this id is not, or no longer, held.
    #[error("no screenshot with the id `{id}` is held")]
    UnknownScreenshot {
        /// The id asked for.
        id: String,
    },
    /// The region lies outside the screenshot or is empty.
    #[error("the region covers no pixel of the {width}x{height} screenshot")]
    InvalidRegion {
        /// Width of the screenshot in pixels.
        width: u32,
        /// Height of the screenshot in pixels.
        height: u32,
    },
}
