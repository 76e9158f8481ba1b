//! How a command ends when it does not end well: one line that says what failed on which input, one that says what to do,
//! and an exit code. It is the only place that knows exit codes.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use crate::config::ConfigError;
use crate::engine::fault::Severity;
use crate::engine::{EngineError, LocateError};
use crate::hub::HubError;
use crate::models::{LoadError, WeightsError};
use crate::prompt::PromptError;
use crate::screenshot::DecodeError;

/// The end of a command that did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    end: End,
}

#[derive(Debug)]
enum End {
    /// Help was asked for: not a failure, but the end.
    Text(String),
    /// Help where something else was expected.
    Misused(String),
    Fault {
        message: String,
        hint: String,
        code: u8,
    },
}

/// The command line or the configuration is wrong; `EX_USAGE` of `sysexits.h`.
const USAGE: u8 = 64;
/// The compute device failed; `EX_SOFTWARE` of `sysexits.h`.
const DEVICE: u8 = 70;
/// Everything else.
const OTHER: u8 = 1;

impl Failure {
    fn new(code: u8, message: impl fmt::Display, hint: impl fmt::Display) -> Self {
        Self { end: End::Fault { message: one_line(&message.to_string()), hint: one_line(&hint.to_string()), code } }
    }

    /// Text that was asked for.
    pub(super) fn text(text: String) -> Self {
        Self { end: End::Text(text) }
    }

    /// Text that was not.
    pub(super) fn misused(text: String) -> Self {
        Self { end: End::Misused(text) }
    }

    /// The command line or the configuration is wrong.
    pub(super) fn usage(message: impl fmt::Display, hint: impl fmt::Display) -> Self {
        Self::new(USAGE, message, hint)
    }

    /// The compute device failed.
    pub(super) fn device(message: impl fmt::Display, hint: impl fmt::Display) -> Self {
        Self::new(DEVICE, message, hint)
    }

    /// Anything else failed.
    pub(super) fn other(message: impl fmt::Display, hint: impl fmt::Display) -> Self {
        Self::new(OTHER, message, hint)
    }

    /// What to do about it.
    pub(super) fn hint(&self) -> &str {
        match &self.end {
            End::Fault { hint, .. } => hint,
            End::Text(_) | End::Misused(_) => "",
        }
    }

    /// The process's exit code.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self.end {
            End::Text(_) => 0,
            End::Misused(_) => USAGE,
            End::Fault { code, .. } => code,
        }
    }

    /// Writes it where it belongs and gives the exit code.
    #[must_use]
    pub fn report(&self) -> ExitCode {
        // When nobody can be told, the code still tells.
        let _nobody = match &self.end {
            End::Text(text) => writeln!(std::io::stdout().lock(), "{}", text.trim_end()),
            End::Misused(text) => writeln!(std::io::stderr().lock(), "{}", text.trim_end()),
            End::Fault { .. } => writeln!(std::io::stderr().lock(), "{self}"),
        };
        ExitCode::from(self.code())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            End::Text(text) | End::Misused(text) => f.write_str(text),
            End::Fault { message, hint, .. } => write!(f, "error: {message}\nhint: {hint}"),
        }
    }
}

/// Some messages, such as those about TOML, draw pictures over several lines.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(&error, error.hint())
    }
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        let code = match error {
            HubError::UnknownModel { .. } | HubError::NoRevision { .. } => USAGE,
            _ => OTHER,
        };
        Self::new(code, &error, error.hint())
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let (code, hint) = match &error {
            LoadError::MissingFile { .. } | LoadError::File(_) => {
                (OTHER, "a model folder has config.json, preprocessor_config.json, a tokenizer and model.safetensors")
            }
            LoadError::Config { file, .. } if file.ends_with("locator.toml") => {
                (OTHER, "compare it with the manifests in models/*.toml of the source")
            }
            LoadError::Config { .. } => {
                (OTHER, "use a Florence-2 checkpoint with the configuration files that it was published with")
            }
            LoadError::Tokenizer(_) => (OTHER, "copy tokenizer.json of the published checkpoint into the folder"),
            LoadError::Weights(WeightsError::Unreadable { .. }) => {
                (OTHER, "the file is not whole: download it again, for hub models with `tapline pull`")
            }
            LoadError::Weights(WeightsError::Device { .. }) => (
                DEVICE,
                "is there enough free memory? try `--dtype bf16` or another `--device`, and see `tapline doctor`",
            ),
            LoadError::Weights(_) => {
                (OTHER, "config.json and the weights are not of one checkpoint; nothing is filled in or left out")
            }
            LoadError::Device(error) => return Self::device(error, error.hint()),
        };
        Self::new(code, &error, hint)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let hint = match &error {
            EngineError::Stopped { cause } if Severity::of(cause) == Severity::Final => {
                "start it again; if it comes back, look for `Xid` in the kernel's log, and whether `nvidia-smi` still answers"
            }
            _ => "`tapline doctor` says what this machine can run",
        };
        Self::device(&error, hint)
    }
}

impl From<LocateError> for Failure {
    fn from(error: LocateError) -> Self {
        let hint = match error {
            LocateError::Engine(error) => return error.into(),
            LocateError::Decode(error) => return error.into(),
            LocateError::Prompt(error) => return error.into(),
            LocateError::InvalidRegion { .. } => "give `--region x1,y1,x2,y2` in pixels of the screenshot",
            LocateError::Admission(_) => "give it more time, or a smaller screenshot",
            LocateError::UnknownScreenshot { .. } => "name the image file",
        };
        Self::other(&error, hint)
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        let hint = match error {
            DecodeError::Empty => "is the file still being written?",
            DecodeError::UnsupportedFormat => "convert it to PNG",
            DecodeError::TooManyPixels { .. } | DecodeError::NoPixels { .. } => "give a screenshot of ordinary size",
            DecodeError::Corrupt { .. } => "take the screenshot again, or open and save it with an image editor",
        };
        Self::other(&error, hint)
    }
}

impl From<PromptError> for Failure {
    fn from(error: PromptError) -> Self {
        let hint = match error {
            PromptError::EmptyCommand => "say what to find: \"click on settings\"",
            PromptError::CommandTooLong { .. } | PromptError::CommandTooLarge { .. } => "say it shorter",
            PromptError::Tokenizer { .. } => "say it in other words",
        };
        Self::other(&error, hint)
    }
}
