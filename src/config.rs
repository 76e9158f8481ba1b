//! The flags of the server and their environment twins, as one typed configuration, with where each value came from.
//! It starts nothing: [`crate::cli`] does.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::BoolishValueParser;

use crate::models::Precision;
use crate::models::device::{DeviceError, open_gpu};
use crate::models::manifest::Strategy;

/// Where and how a model computes.
#[derive(Debug, Clone, clap::Args)]
pub struct Compute {
    /// Number format of the computation: f32 gives the reference's numbers. bf16 needs half the memory for weights and is faster
    /// on GPUs and on processors with AMX or AVX-512 BF16 (`tapline doctor` tells). f16 is meant for GPUs, on a CPU it is slow.
    #[arg(long, env = "TAPLINE_DTYPE", value_enum, default_value = "f32")]
    pub dtype: Precision,
    /// Where the model runs: `cpu`, or `cuda:0`, `cuda:1` … in a build with the `cuda` feature. Of several, separated by commas,
    /// each gets the whole model, and a batch goes to whichever is free.
    #[arg(long, env = "TAPLINE_DEVICE", default_value = "cpu", value_name = "DEVICE", value_delimiter = ',')]
    pub device: Vec<DeviceChoice>,
    /// Do not record CUDA graphs: launch every kernel by itself. Slower for small batches; for finding faults.
    #[arg(long, env = "TAPLINE_NO_GRAPHS", value_parser = BoolishValueParser::new())]
    pub no_graphs: bool,
    /// Threads that compute. Unset: `RAYON_NUM_THREADS` where that is set, else as many as the machine (or its container)
    /// lends.
    #[arg(long, env = "TAPLINE_THREADS", value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}

/// How answers are decoded unless a request says otherwise.
#[derive(Debug, Clone, clap::Args)]
pub struct Decoding {
    /// How answers are decoded: `greedy` takes the likeliest token at each step, `beam` keeps a few answers and takes the
    /// likeliest whole one. Unset: as the model's authors ran it.
    #[arg(long, env = "TAPLINE_DECODING", value_enum)]
    pub decoding: Option<Strategy>,
    /// Let the model write anything, as its authors ran it, instead of only answers that name a place.
    #[arg(long, env = "TAPLINE_UNCONSTRAINED", value_parser = BoolishValueParser::new())]
    pub unconstrained: bool,
}

/// `tapline serve`.
#[derive(Debug, Clone, clap::Args)]
pub struct Config {
    /// Model to serve: `pocket` (inside this program), `tinyclick`, a hub id `owner/name`, or a folder with a checkpoint,
    /// which never asks the network. Repeat it to serve several; the first is the default.
    #[arg(long, env = "TAPLINE_MODEL", default_value = "pocket", value_name = "MODEL", value_delimiter = ',')]
    pub model: Vec<String>,
    /// Name that callers know the model by. Repeat it as often as `--model`. Unset: the model's own.
    #[arg(long, env = "TAPLINE_SERVED_MODEL_NAME", value_name = "NAME", value_delimiter = ',')]
    pub served_model_name: Vec<String>,
    /// Branch, tag or commit of the one hub model that is served. Unset: the pinned commit of a known model, `main` of any
    /// other.
    #[arg(long, env = "TAPLINE_REVISION", value_name = "REVISION")]
    pub revision: Option<String>,
    /// Address to listen on. Only this machine by default; 0.0.0.0 (in containers) for all.
    #[arg(long, env = "TAPLINE_HOSTNAME", default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub hostname: String,
    /// Port to listen on; 0 for any free one. The address is printed to standard error.
    #[arg(long, env = "TAPLINE_PORT", default_value = "8080", value_name = "PORT")]
    pub port: u16,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the comment would become help text")]
    pub compute: Compute,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the comment would become help text")]
    pub decoding: Decoding,
    /// Threads that decode screenshots and tokenise commands; 0 for as many as the machine lends.
    #[arg(long, env = "TAPLINE_PREPARE_THREADS", default_value = "0", value_name = "N")]
    pub prepare_threads: usize,
    /// Most commands that run together.
    #[arg(long, env = "TAPLINE_MAX_BATCH_REQUESTS", default_value = "16", value_name = "N")]
    pub max_batch_requests: NonZeroUsize,
    /// How long the first waiting request may wait for others while the model is free. Zero is best for latency: a batch
    /// then is whatever came in while the last one ran.
    #[arg(long, env = "TAPLINE_MAX_BATCH_WAIT", default_value = "0ms", value_name = "TIME", value_parser = parse_duration)]
    pub max_batch_wait: Duration,
    /// Memory for what the image encoder returned, in MiB, so that a further command on a screenshot costs only its text.
    #[arg(long, env = "TAPLINE_FEATURE_CACHE_MB", default_value = "256", value_name = "MIB")]
    pub feature_cache_mb: usize,
    /// Memory for screenshot files, in MiB, so that a further command may name one by its id.
    #[arg(long, env = "TAPLINE_SCREENSHOT_CACHE_MB", default_value = "64", value_name = "MIB")]
    pub screenshot_cache_mb: usize,
    /// Requests inside at once; the next one is refused with 429.
    #[arg(long, env = "TAPLINE_MAX_CONCURRENT_REQUESTS", default_value = "512", value_name = "N")]
    pub max_concurrent_requests: NonZeroUsize,
    /// Bytes of request bodies inside at once; beyond, requests are refused with 429.
    #[arg(long, env = "TAPLINE_MAX_ADMITTED_BYTES", default_value = "1GiB", value_name = "BYTES", value_parser = parse_bytes)]
    pub max_admitted_bytes: u64,
    /// Commands in one request.
    #[arg(long, env = "TAPLINE_MAX_CLIENT_BATCH_SIZE", default_value = "32", value_name = "N")]
    pub max_client_batch_size: NonZeroUsize,
    /// Bytes of one request's body.
    #[arg(long, env = "TAPLINE_PAYLOAD_LIMIT", default_value = "32MB", value_name = "BYTES", value_parser = parse_bytes)]
    pub payload_limit: u64,
    /// Pixels of one screenshot, by its header: a larger one is refused before it is decoded.
    #[arg(long, env = "TAPLINE_MAX_PIXELS", default_value = "64000000", value_name = "PIXELS")]
    pub max_pixels: u64,
    /// Time that a request is given unless it says otherwise.
    #[arg(long, env = "TAPLINE_TIMEOUT", default_value = "60s", value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Most time that a request may give itself.
    #[arg(long, env = "TAPLINE_MAX_TIMEOUT", default_value = "300s", value_name = "TIME", value_parser = parse_duration)]
    pub max_timeout: Duration,
    /// After SIGTERM, how long to go on taking requests while load balancers take this replica out.
    #[arg(long, env = "TAPLINE_DRAIN_GRACE", default_value = "0s", value_name = "TIME", value_parser = parse_duration)]
    pub drain_grace: Duration,
    /// After that, how long the requests inside may take to finish.
    #[arg(long, env = "TAPLINE_DRAIN_TIMEOUT", default_value = "30s", value_name = "TIME", value_parser = parse_duration)]
    pub drain_timeout: Duration,
    /// A step of the model that takes longer than this means that the device hangs: the server then calls itself dead.
    #[arg(long, env = "TAPLINE_STALL_THRESHOLD", default_value = "120s", value_name = "TIME", value_parser = parse_duration)]
    pub stall_threshold: Duration,
    /// Log lines as JSON. What is logged is set by `TAPLINE_LOG`, such as `debug`.
    #[arg(long, env = "TAPLINE_JSON_OUTPUT", value_parser = BoolishValueParser::new())]
    pub json_output: bool,
    /// Print every value and where it came from, and exit.
    #[arg(long, env = "TAPLINE_PRINT_CONFIG", value_parser = BoolishValueParser::new())]
    pub print_config: bool,
}

/// Values that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Names and models do not pair up.
    #[error("there are {names} names in `--served-model-name` for {models} in `--model`")]
    Names {
        /// How many names.
        names: usize,
        /// How many models.
        models: usize,
    },
    /// Two models would have one name.
    #[error("two models are called `{name}`")]
    SameName {
        /// The name.
        name: String,
    },
    /// It is not clear which model's revision is meant.
    #[error("`--revision` is given for {models} models")]
    Revision {
        /// How many.
        models: usize,
    },
    /// The default is over the limit.
    #[error("`--timeout` is longer than `--max-timeout`")]
    Timeouts,
    /// Nothing to compute on.
    #[error("`--device` names no device")]
    NoDevice,
    /// This build has no GPU code.
    #[error("`--device {device}` needs a build with the `cuda` feature, which this one is not")]
    NoCuda {
        /// The device.
        device: DeviceChoice,
    },
}

impl ConfigError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Names { .. } => "give one name for each model, in the same order, or none",
            Self::SameName { .. } => "tell them apart with `--served-model-name`",
            Self::Revision { .. } => "serve one model, or let each have its own revision",
            Self::Timeouts => "raise `--max-timeout` or lower `--timeout`",
            Self::NoDevice => "leave it out for the processor, or name one: `cpu`, `cuda:0`",
            Self::NoCuda { .. } => "build with `--features cuda` (needs nvcc), or use `--device cpu`",
        }
    }
}

impl Compute {
    /// Whether this build can use the devices at all. Whether they are there turns out when they are opened.
    ///
    /// # Errors
    /// [`ConfigError::NoCuda`] or [`ConfigError::NoDevice`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.device.is_empty() {
            return Err(ConfigError::NoDevice);
        }
        self.device.iter().try_for_each(|device| device.check())
    }
}

impl Config {
    /// Checks the values against each other; each alone is right by its type.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), ConfigError> {
        let (names, models) = (self.served_model_name.len(), self.model.len());
        if names != 0 && names != models {
            return Err(ConfigError::Names { names, models });
        }
        if self.revision.is_some() && models != 1 {
            return Err(ConfigError::Revision { models });
        }
        if self.timeout > self.max_timeout {
            return Err(ConfigError::Timeouts);
        }
        self.compute.check()
    }
}

/// A compute device by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU, by its number.
    Cuda(usize),
}

impl DeviceChoice {
    /// Whether this build can use it at all. Whether it is there turns out when it is opened.
    ///
    /// # Errors
    /// [`ConfigError::NoCuda`].
    pub fn check(self) -> Result<(), ConfigError> {
        match self {
            Self::Cuda(_) if !cfg!(feature = "cuda") => Err(ConfigError::NoCuda { device: self }),
            Self::Cpu | Self::Cuda(_) => Ok(()),
        }
    }

    /// Opens it. Call it on the thread that will compute.
    ///
    /// # Errors
    /// The device or its driver is absent.
    pub fn open(self) -> Result<candle_core::Device, DeviceError> {
        match self {
            Self::Cpu => Ok(candle_core::Device::Cpu),
            Self::Cuda(number) => open_gpu(number),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.parse().map(Self::Cuda).ok();
        match text.split_once(':') {
            None if text == "cpu" => Some(Self::Cpu),
            None if text == "cuda" => Some(Self::Cuda(0)),
            Some(("cuda", text)) => number(text),
            _ => None,
        }
        .ok_or("a device is `cpu` or `cuda:N`")
    }
}

impl std::fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// A time such as `0ms`, `250ms`, `1.5s`, `2m` or `1h`.
///
/// # Errors
/// What a time looks like.
///
/// ```
/// # use std::time::Duration;
/// assert_eq!(tapline::config::parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
/// assert!(tapline::config::parse_duration("5").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "a time is a number with its unit: `5ms`, `2s`, `1m` or `1h`";
    let (number, unit) = number_and_unit(text).ok_or(EXPECTED)?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ if number == 0.0 => 0.0,
        _ => return Err(EXPECTED),
    };
    // A year is longer than anything here takes, and keeps deadlines far from the end of the clock.
    if seconds > 366.0 * 86_400.0 {
        return Err("a time is at most a year");
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A number of bytes such as `1000`, `32MB` (decimal) or `1GiB` (binary).
///
/// # Errors
/// What a number of bytes looks like.
///
/// ```
/// assert_eq!(tapline::config::parse_bytes("32MB"), Ok(32_000_000));
/// assert_eq!(tapline::config::parse_bytes("1.5KiB"), Ok(1536));
/// ```
pub fn parse_bytes(text: &str) -> Result<u64, &'static str> {
    const EXPECTED: &str = "a number of bytes is `1000`, `32MB` or `1GiB`";
    let (number, unit) = number_and_unit(text).ok_or(EXPECTED)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1_048_576.0,
        "gib" => 1_073_741_824.0,
        _ => return Err(EXPECTED),
    };
    let bytes = number * scale;
    if bytes > 1e15 {
        return Err("that is more than any machine has");
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked above to lie within 0 and 1e15"
    )]
    Ok(bytes.round() as u64)
}

/// Splits `1.5s` into the number and what follows. No sign, no exponent, nothing that is not finite.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

/// Every flag of a command with its value and where that came from, one in a line: `--port 8080  (default)`.
#[must_use]
pub fn explain(command: &clap::Command, matches: &clap::ArgMatches) -> String {
    use clap::parser::ValueSource;
    let mut lines = String::new();
    for flag in command.get_arguments() {
        let Some(name) = flag.get_long().filter(|name| !matches!(*name, "help" | "version" | "print-config")) else {
            continue;
        };
        let values: Vec<String> = matches
            .get_raw(flag.get_id().as_str())
            .map(|values| values.map(|value| value.to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        let value = if values.is_empty() { "(unset)".to_owned() } else { values.join(",") };
        let source = match matches.value_source(flag.get_id().as_str()) {
            Some(ValueSource::CommandLine) => "flag".to_owned(),
            Some(ValueSource::EnvVariable) => {
                format!("environment {}", flag.get_env().unwrap_or_default().to_string_lossy())
            }
            _ => "default".to_owned(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(lines, "--{name} {value}  ({source})");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let times =
            [("0ms", 0), ("5ms", 5), ("0", 0), ("250ms", 250), ("2s", 2000), (" 1 m ", 60_000), ("0.5h", 1_800_000)];
        for (text, milliseconds) in times {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for bad in ["", "5", "ms", "-5s", "1e3s", "5 parsecs", "1.2.3s", "inf s", "NaN", "9999999h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_have_units_or_none() {
        for (text, bytes) in [("0", 0), ("1000", 1000), ("32MB", 32_000_000), ("1GiB", 1 << 30), ("2 kb", 2000)] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "MB", "-1", "1XB", "99999999GB", "0x10"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn devices_are_named() {
        assert_eq!("cpu".parse(), Ok(DeviceChoice::Cpu));
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert_eq!("cuda:3".parse(), Ok(DeviceChoice::Cuda(3)));
        assert_eq!(DeviceChoice::Cuda(3).to_string(), "cuda:3");
        for bad in ["", "gpu", "cuda:", "cuda:-1", "cpu:0", "metal"] {
            assert!(bad.parse::<DeviceChoice>().is_err(), "{bad}");
        }
    }
}
