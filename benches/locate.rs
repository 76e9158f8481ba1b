//! One locate after another on a phone's screen of 1080x2400, each way through the real engine as a request goes without HTTP:
//!
//!     cargo bench --bench locate [-- --json]
//!
//! Every picture differs a little from those before, so that no cache answers. Runs the embedded model, and the model in the
//! folder that `TAPLINE_BENCH_MODEL` names if it does. Prints a table: median and 90th percentile of each stage.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use image::{Rgb, RgbImage};
use tapline::engine::compute::ComputePool;
use tapline::engine::pool::CpuPool;
use tapline::engine::{EngineOptions, Handle, ImageSource, Request, Timings};
use tapline::models::{Checkpoint, LoadOptions, load};
use tapline::schedule::{Admission, admission};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Requests that are measured, after those that fill caches, memory and branch predictors.
const REQUESTS: u32 = 60;
const WARM_UP: u32 = 10;
const WIDTH: u32 = 1080;
const HEIGHT: u32 = 2400;
const COMMANDS: [&str; 4] = ["open settings", "the save button", "click on search", "sign in"];

/// What of a request's time goes where.
const STAGES: [&str; 6] = ["decode", "prepare", "vision", "text", "everything else", "total"];

fn main() -> Outcome<()> {
    let json = std::env::args().any(|argument| argument == "--json");
    let mut models = vec![("pocket".to_owned(), Checkpoint::Embedded)];
    if let Some(folder) = std::env::var_os("TAPLINE_BENCH_MODEL").map(PathBuf::from) {
        models.push((folder.display().to_string(), Checkpoint::Folder(folder)));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    for (name, checkpoint) in models {
        let timings = runtime.block_on(measure(&name, checkpoint))?;
        if json { print_json(&name, &timings) } else { print_table(&name, &timings) }
    }
    Ok(())
}

/// The timings of one request after the other.
async fn measure(name: &str, checkpoint: Checkpoint) -> Outcome<Vec<Timings>> {
    let compute = Some(ComputePool::new(std::thread::available_parallelism()?.get())?);
    let options =
        EngineOptions { feature_cache_bytes: 0, screenshot_store_bytes: 0, compute, ..EngineOptions::new(name) };
    let pool = CpuPool::new(0, 4)?;
    let engine = Handle::spawn(options, pool, move || load(&checkpoint, &LoadOptions::default()))?;
    engine.ready().await?;
    let admission = Admission::new(admission::Limits::default());
    let mut timings = Vec::new();
    for index in 0..WARM_UP + REQUESTS {
        let file = png(&screen(index))?;
        let command = COMMANDS[index as usize % COMMANDS.len()].to_owned();
        let mut request = Request::new(ImageSource::Bytes(file.into()), vec![command]);
        request.arrived = Instant::now();
        let reply = engine.locate(admission.try_enter()?, request).await?;
        if index >= WARM_UP {
            timings.push(reply.timings);
        }
    }
    engine.close();
    Ok(timings)
}

/// The stages of a request in the order of [`STAGES`].
fn stages(timings: &Timings) -> [Duration; 6] {
    let Timings { decode, prepare, vision, text, total, .. } = *timings;
    [decode, prepare, vision, text, total.saturating_sub(decode + prepare + vision + text), total]
}

/// Median and 90th percentile of each stage, in milliseconds.
fn figures(timings: &[Timings]) -> Vec<(&'static str, f64, f64)> {
    let figure = |(stage, name): (usize, &'static str)| {
        let mut times: Vec<f64> = timings.iter().map(|timings| stages(timings)[stage].as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len() - 1)).copied();
        (name, at(50).unwrap_or_default(), at(90).unwrap_or_default())
    };
    STAGES.into_iter().enumerate().map(figure).collect()
}

fn print_table(name: &str, timings: &[Timings]) {
    println!("{name}, {REQUESTS} requests one at a time, PNG of {WIDTH}x{HEIGHT}\n");
    println!("| stage | median ms | p90 ms |\n|---|---|---|");
    for (stage, median, p90) in figures(timings) {
        println!("| {stage} | {median:.1} | {p90:.1} |");
    }
    println!();
}

fn print_json(name: &str, timings: &[Timings]) {
    let stages: serde_json::Map<_, _> = figures(timings)
        .into_iter()
        .map(|(stage, median, p90)| (stage.to_owned(), serde_json::json!({ "median_ms": median, "p90_ms": p90 })))
        .collect();
    println!("{}", serde_json::json!({ "model": name, "requests": REQUESTS, "stages": stages }));
}

/// Numbers that look random and are the same in every run.
struct Dice(u32);

impl Dice {
    /// At least `from`, less than `to`.
    fn roll(&mut self, from: u32, to: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        from + (self.0 >> 8) % (to - from)
    }

    fn color(&mut self) -> Rgb<u8> {
        Rgb([0; 3].map(|_: u8| u8::try_from(self.roll(0, 256)).unwrap_or(0)))
    }
}

/// A screen of cards with icons, lines of text and progress bars between two bars; another one for each `index`.
fn screen(index: u32) -> RgbImage {
    let mut dice = Dice(index.wrapping_mul(2_654_435_761) | 1);
    let mut picture = RgbImage::from_pixel(WIDTH, HEIGHT, Rgb([244, 245, 249]));
    let accent = dice.color();
    fill(&mut picture, (0, 0, WIDTH, 180), accent);
    text(&mut picture, &mut dice, (60, 84, 700, 44), Rgb([255; 3]));
    let mut top = 220;
    while top < HEIGHT - 420 {
        let height = dice.roll(150, 280);
        fill(&mut picture, (38, top - 2, WIDTH - 76, height + 4), Rgb([222, 224, 230]));
        fill(&mut picture, (40, top, WIDTH - 80, height), Rgb([255; 3]));
        disc(&mut picture, (120, top + 70, 44), dice.color());
        for line in 0..(height - 60) / 44 {
            let width = dice.roll(300, 760);
            let shade = if line == 0 { Rgb([30, 32, 40]) } else { Rgb([120, 124, 136]) };
            text(&mut picture, &mut dice, (200, top + 36 + line * 44, width, 22), shade);
        }
        let done = dice.roll(100, 800);
        fill(&mut picture, (200, top + height - 24, 800, 8), Rgb([228, 230, 236]));
        fill(&mut picture, (200, top + height - 24, done, 8), accent);
        top += height + 28;
    }
    fill(&mut picture, (0, HEIGHT - 170, WIDTH, 170), Rgb([255; 3]));
    for place in 0..5 {
        disc(&mut picture, (108 + place * 216, HEIGHT - 95, 34), dice.color());
    }
    picture
}

fn fill(picture: &mut RgbImage, (left, top, width, height): (u32, u32, u32, u32), color: Rgb<u8>) {
    for y in top..(top + height).min(HEIGHT) {
        for x in left..(left + width).min(WIDTH) {
            picture.put_pixel(x, y, color);
        }
    }
}

fn disc(picture: &mut RgbImage, (x, y, radius): (u32, u32, u32), color: Rgb<u8>) {
    for dy in 0..=2 * radius {
        for dx in 0..=2 * radius {
            if dx.abs_diff(radius).pow(2) + dy.abs_diff(radius).pow(2) <= radius * radius {
                picture.put_pixel(x + dx - radius, y + dy - radius, color);
            }
        }
    }
}

/// Words of strokes as wide as those of letters.
fn text(picture: &mut RgbImage, dice: &mut Dice, (left, top, width, height): (u32, u32, u32, u32), color: Rgb<u8>) {
    let mut x = left;
    while x < left + width {
        let stroke = dice.roll(2, 5);
        let short = dice.roll(0, height / 2);
        fill(picture, (x, top + short, stroke, height - short), color);
        if dice.roll(0, 3) == 0 {
            fill(picture, (x, top + height / 2, 9, 3), color);
        }
        x += stroke + if dice.roll(0, 7) == 0 { 20 } else { dice.roll(3, 9) };
    }
}

fn png(picture: &RgbImage) -> Outcome<Vec<u8>> {
    let mut file = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut file, image::ImageFormat::Png)?;
    Ok(file.into_inner())
}
