//! `tapline locate`: one screenshot, some commands, answers on standard output.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::builder::BoolishValueParser;

use super::{Failure, annotate, engine, print, say, trace};
use crate::config::{Compute, Decoding, parse_duration};
use crate::engine::pool::CpuPool;
use crate::engine::{EngineOptions, Handle, ImageSource, Reply, Request, Want};
use crate::geometry::{Pixels, Rect};
use crate::hub::Source;
use crate::schedule::{Admission, admission};
use crate::screenshot::{self, Limits};
use crate::server::response::{LocateResponse, LocateResult, Number, Probability, SpaceName, TimingsBody};

/// Flags of `tapline locate`.
#[derive(Debug, Clone, clap::Args)]
pub struct Locate {
    /// Screenshot: PNG, JPEG, WebP, BMP or GIF; `-` reads it from standard input.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// What to find, such as "click on settings". Several are answered with one look at the screenshot.
    #[arg(value_name = "COMMAND", required = true)]
    commands: Vec<String>,
    /// Model to ask: `pocket` (inside this program), `tinyclick`, a hub id `owner/name`, or a folder with a checkpoint,
    /// which never asks the network.
    #[arg(long, env = "TAPLINE_MODEL", default_value = "pocket", value_name = "MODEL")]
    model: String,
    /// Branch, tag or commit of a hub model. Unset: the pinned commit of a known model, `main` of any other.
    #[arg(long, env = "TAPLINE_REVISION", value_name = "REVISION")]
    revision: Option<String>,
    /// What is wanted: a `point` to press, or the element's `box` where the model gives one.
    #[arg(long, env = "TAPLINE_WANT", value_enum, default_value = "point")]
    want: Want,
    /// Search only in this part of the screenshot, in its pixels. Answers stay in coordinates of the whole.
    #[arg(long, env = "TAPLINE_REGION", value_name = "X1,Y1,X2,Y2", allow_hyphen_values = true)]
    region: Option<RegionFlag>,
    /// Space of the coordinates in the answers.
    #[arg(long, env = "TAPLINE_SPACE", value_enum, default_value = "pixels")]
    space: SpaceName,
    /// How many further candidates to give (with `--json`).
    #[arg(long, env = "TAPLINE_ALTERNATIVES", default_value = "0", value_name = "N")]
    alternatives: usize,
    /// Call answers less certain than this not found; 0 to 1.
    #[arg(long, env = "TAPLINE_MIN_CONFIDENCE", default_value = "0", value_name = "P")]
    min_confidence: f64,
    /// Time to answer, once the model is loaded.
    #[arg(long, env = "TAPLINE_TIMEOUT", default_value = "300s", value_name = "TIME", value_parser = parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    pub(super) compute: Compute,
    #[command(flatten)]
    decoding: Decoding,
    /// Print the API's JSON instead of lines.
    #[arg(long, env = "TAPLINE_JSON", value_parser = BoolishValueParser::new())]
    json: bool,
    /// Write the screenshot with the answers drawn on it to this .png or .jpg file.
    #[arg(long, env = "TAPLINE_OUT", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the tensors of every stage to this safetensors file, under the names of tests/fixtures, to compare a port or a
    /// checkpoint with the reference. One command only.
    #[arg(long, env = "TAPLINE_TRACE", value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Answer N more times without the feature cache and add their `timings` to the JSON as `repeats`, with the time to
    /// load the model as `load_ms`.
    #[arg(long, env = "TAPLINE_REPEAT", value_name = "N")]
    repeat: Option<usize>,
}

/// A rectangle on the command line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RegionFlag(pub Rect<Pixels>);

impl FromStr for RegionFlag {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Option<Vec<f64>> = text
            .split(',')
            .map(|number| number.trim().parse().ok().filter(|number: &f64| number.is_finite()))
            .collect();
        match numbers.as_deref() {
            Some(&[x1, y1, x2, y2]) => Ok(Self(Rect::new(x1, y1, x2, y2))),
            _ => Err("a region is four numbers: left, top, right, bottom"),
        }
    }
}

/// What came of it.
struct Answered {
    name: String,
    reply: Reply,
    load: Duration,
    repeats: Vec<Reply>,
}

impl Locate {
    pub(super) fn run(&self) -> Result<(), Failure> {
        // All that can be wrong without a model is found out before there is one.
        let format = self.out.as_deref().map(annotate::format_of).transpose()?;
        if self.trace.is_some() && self.commands.len() > 1 {
            return Err(Failure::usage("`--trace` takes one command", "leave the others out"));
        }
        if !(0.0..=1.0).contains(&self.min_confidence) {
            return Err(Failure::usage("`--min-confidence` is a probability", "give a number from 0 to 1"));
        }
        let source = Source::parse(&self.model, self.revision.as_deref())?;
        let image = self.read()?;
        let limits = Limits::default();
        screenshot::sniff(&image, &limits)?;

        let answered = self.ask(&source, &image)?;
        if let Some(path) = &self.trace {
            let tokens = answered.reply.groundings.first().map(|grounding| grounding.tokens.as_slice());
            let (checkpoint, load) = engine::fetch(&source)?;
            let device = self.compute.device.first().copied().unwrap_or_default();
            let load = engine::open(&self.compute, device, load)?;
            let input = trace::Input {
                image: &image,
                region: self.region.map(|region| region.0),
                command: self.commands.first().map_or("", String::as_str),
                tokens: tokens.unwrap_or_default(),
            };
            trace::write(path, &checkpoint, &load, &input)?;
            say(format_args!("tensors written to {}", path.display()));
        }
        if let Some((path, format)) = self.out.as_deref().zip(format) {
            let shot = screenshot::decode(&image, &limits)?;
            let picture = annotate::annotate(&shot, &answered.reply.groundings, format)?;
            fs_err::write(path, picture).map_err(|error| Failure::other(error, "can the folder be written?"))?;
            say(format_args!("answers drawn on {}", path.display()));
        }
        print(&self.text(&answered)?)
    }

    fn read(&self) -> Result<Bytes, Failure> {
        let hint = "name an image file, or `-` for standard input";
        if self.image == Path::new("-") {
            let mut bytes = Vec::new();
            std::io::stdin()
                .lock()
                .read_to_end(&mut bytes)
                .map_err(|error| Failure::other(format!("standard input cannot be read: {error}"), hint))?;
            return Ok(bytes.into());
        }
        fs_err::read(&self.image).map(Bytes::from).map_err(|error| Failure::other(error, hint))
    }

    /// Loads the model and asks it, as a server would.
    fn ask(&self, source: &Source, image: &Bytes) -> Result<Answered, Failure> {
        let name = source.name();
        let pool = CpuPool::new(0, 4).map_err(|error| Failure::other(error, "raise the limit of processes"))?;
        let loading = Instant::now();
        let compute = engine::compute_pool(&self.compute)?;
        let options = EngineOptions { compute, ..EngineOptions::new(name.clone()) };
        let engine = engine::start(source, options, &self.compute, pool)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::other(error, "raise the limit of open files"))?;
        runtime.block_on(async {
            if let Err(error) = engine.handle.ready().await {
                return Err(engine.failure().unwrap_or_else(|| error.into()));
            }
            let load = loading.elapsed();
            let reply = self.locate(&engine.handle, image).await?;
            let mut repeats = Vec::new();
            for _ in 0..self.repeat.unwrap_or(0) {
                engine.handle.clear_cache();
                repeats.push(self.locate(&engine.handle, image).await?);
            }
            engine.handle.close();
            Ok(Answered { name, reply, load, repeats })
        })
    }

    async fn locate(&self, handle: &Handle, image: &Bytes) -> Result<Reply, Failure> {
        let request = Request {
            region: self.region.map(|region| region.0),
            want: self.want,
            decoding: self.decoding.decoding,
            constrained: !self.decoding.unconstrained,
            alternatives: self.alternatives,
            min_confidence: self.min_confidence,
            timeout: self.timeout,
            ..Request::new(ImageSource::Bytes(image.clone()), self.commands.clone())
        };
        let permit = Admission::new(admission::Limits::default()).try_enter();
        let permit = permit.map_err(|error| Failure::other(error, "try again"))?;
        Ok(handle.locate(permit, request).await?)
    }

    /// What goes to standard output.
    fn text(&self, answered: &Answered) -> Result<String, Failure> {
        let Answered { name, reply, load, repeats } = answered;
        let response = LocateResponse::new(name, self.space, reply);
        if !self.json {
            let time = reply.timings.total;
            return Ok(response.results.iter().map(|result| line(result, time)).collect());
        }
        let milliseconds = |time: Duration| Number((time.as_secs_f64() * 1e6).round() / 1e3);
        let timings = |reply: &Reply| LocateResponse::new(name, self.space, reply).timings;
        let output = Output {
            response: &response,
            load_ms: self.repeat.map(|_| milliseconds(*load)),
            repeats: self.repeat.map(|_| repeats.iter().map(timings).collect()),
        };
        let text =
            serde_json::to_string_pretty(&output).map_err(|error| Failure::other(error, "leave out `--json`"))?;
        Ok(text + "\n")
    }
}

/// What `--json` prints: the API's reply, and with `--repeat` more.
#[derive(serde::Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    response: &'a LocateResponse,
    #[serde(skip_serializing_if = "Option::is_none")]
    load_ms: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeats: Option<Vec<TimingsBody>>,
}

/// One answer, its parts in columns.
fn line(result: &LocateResult, time: Duration) -> String {
    let join =
        |numbers: &[Number]| numbers.iter().map(|number| format!("{}", Plain(*number))).collect::<Vec<_>>().join(",");
    let point = result.point.map_or_else(|| "-".to_owned(), |point| join(&[point.x, point.y]));
    let bounds = result.bounds.map_or_else(|| "-".to_owned(), |b| join(&[b.x1, b.y1, b.x2, b.y2]));
    let found = if result.found { "found" } else { "not found" };
    let confidence =
        result.confidence.map_or_else(|| "-".to_owned(), |Probability(confidence)| format!("{confidence:.2e}"));
    let command = result.command.split_whitespace().collect::<Vec<_>>().join(" ");
    let milliseconds = time.as_secs_f64() * 1e3;
    format!("{command:<40}  {found:<9}  {point:<13}  {bounds:<23}  {confidence:<8}  {milliseconds:.0} ms\n")
}

/// A coordinate with no more decimals than it has.
struct Plain(Number);

impl std::fmt::Display for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Number(value) = self.0;
        // Four decimals of a normalised coordinate are finer than a pixel of any screen.
        write!(f, "{}", (value * 1e4).round() / 1e4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_four_finite_numbers() {
        assert_eq!("1,2, 3,4.5".parse(), Ok(RegionFlag(Rect::new(1.0, 2.0, 3.0, 4.5))));
        for bad in ["", "1,2,3", "1,2,3,4,5", "a,b,c,d", "1,2,3,inf", "NaN,0,1,1"] {
            assert!(bad.parse::<RegionFlag>().is_err(), "{bad}");
        }
    }

    #[test]
    fn coordinates_are_short() {
        let plain = |value| Plain(Number(value)).to_string();
        assert_eq!((plain(512.0), plain(0.333_333), plain(-0.00001)), ("512".into(), "0.3333".into(), "-0".into()));
    }
}
