//! Where the time of one answer at TinyClick's size goes, operation by operation:
//!
//!     cargo bench --bench profile [-- --dtype bf16]
//!
//! Measures each operation of the network at the shapes it has there (768x768 pixels, a prompt of 15 ids, an answer of
//! seven), alone and through the public interface of the kernels, and multiplies it by how often it occurs. With
//! `TAPLINE_BENCH_MODEL=folder` (a checkpoint of that size, such as `compare/full_size.py` writes) the sums stand next to
//! the whole as the model runs it. An operation has random weights of its own for each time it occurs, up to
//! [`MOST_WEIGHTS`], so that they are not found in a cache where the model would not find them. GFLOP are counted with two
//! for a multiply-add; normalisations and activations count nothing.

#[path = "profile/network.rs"]
mod network;

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use candle_core::DType;
use tapline::models::{Checkpoint, LoadOptions, Precision, PromptRow, load};

use network::{DECODED, Operation, PROMPT, Part, SIDE, operations};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Measured runs of each operation, after one that warms up.
const RUNS: usize = 9;

/// Weights of one operation that are held at the same time.
pub const MOST_WEIGHTS: usize = 6;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let bf16 = arguments.windows(2).any(|pair| pair == ["--dtype", "bf16"]);
    let (precision, dtype) = if bf16 { (Precision::Bf16, DType::BF16) } else { (Precision::F32, DType::F32) };
    let whole = match std::env::var_os("TAPLINE_BENCH_MODEL") {
        Some(folder) => Some(whole(folder.into(), precision)?),
        None => None,
    };
    let mut lines = Vec::new();
    for operation in operations(dtype) {
        let time = time(&operation)?;
        lines.push(Line {
            part: operation.part,
            name: operation.name,
            shape: operation.shape,
            times: operation.times,
            time,
            gflop: operation.gflop,
        });
    }
    print_operations(&lines, rayon::current_num_threads(), if bf16 { "bf16" } else { "f32" });
    print_parts(&lines, whole.as_ref());
    Ok(())
}

/// One row of the table.
struct Line {
    part: Part,
    name: &'static str,
    shape: String,
    times: usize,
    time: Duration,
    gflop: f64,
}

impl Line {
    fn total(&self) -> f64 {
        milliseconds(self.time) * self.times as f64
    }
}

/// Median time of one operation, its input in the caches as the operation before would have left it.
fn time(operation: &Operation) -> Outcome<Duration> {
    // As the model runs: on a thread of the pool, so that no kernel waits for one to wake up.
    rayon::scope(|_| {
        let mut times = Vec::with_capacity(RUNS);
        for run in 0..=RUNS {
            let input = operation.input.copy()?;
            let start = Instant::now();
            std::hint::black_box((operation.run)(run, input)?);
            if run > 0 {
                times.push(start.elapsed());
            }
        }
        Ok(median(times))
    })
}

/// Median times of the parts as the model runs them.
struct Whole {
    vision: Duration,
    prompt: Duration,
    answer: Duration,
}

fn whole(folder: PathBuf, precision: Precision) -> Outcome<Whole> {
    let model = load(&Checkpoint::Folder(folder), &LoadOptions { precision, ..LoadOptions::default() })?;
    let pixels: Vec<f32> = (0..3 * SIDE * SIDE).map(|i| (i % 255) as f32 / 127.0 - 1.0).collect();
    let ids: Vec<u32> = (5..).take(PROMPT).collect();
    let (mut vision, mut prompt, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..=RUNS {
        let start = Instant::now();
        let features = model.locator.encode_images(&[&pixels])?.remove(0);
        let seen = Instant::now();
        let mut session = model.locator.begin(&[PromptRow { features: &features, ids: &ids }])?;
        let read = Instant::now();
        for id in 0..u32::try_from(DECODED)? {
            std::hint::black_box(session.decode(&[100 + id])?);
        }
        if run > 0 {
            answer.push(read.elapsed());
            prompt.push(read - seen);
            vision.push(seen - start);
        }
    }
    Ok(Whole { vision: median(vision), prompt: median(prompt), answer: median(answer) })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn print_operations(lines: &[Line], threads: usize, dtype: &str) {
    let all: f64 = lines.iter().map(Line::total).sum();
    println!("{dtype}, {threads} threads, medians of {RUNS} runs\n");
    println!("| part | operation | shape | times | ms each | ms | share | GFLOP | GFLOP/s |");
    println!("|---|---|---|---:|---:|---:|---:|---:|---:|");
    for line in lines {
        let (total, gflop) = (line.total(), line.gflop * line.times as f64);
        let rate =
            if gflop > 0.0 { format!("{gflop:.2} | {:.0}", gflop / total * 1e3) } else { "– | –".to_owned() };
        println!(
            "| {} | {} | {} | {} | {:.3} | {total:.1} | {:.1} % | {rate} |",
            line.part.name(),
            line.name,
            line.shape,
            line.times,
            milliseconds(line.time),
            total / all * 100.0,
        );
    }
    println!();
}

/// Sums over the parts of the network, next to the whole where it was measured.
fn print_parts(lines: &[Line], whole: Option<&Whole>) {
    let sum = |parts: &[Part]| -> (f64, f64) {
        let of_parts = lines.iter().filter(|line| parts.contains(&line.part));
        of_parts.fold((0.0, 0.0), |(ms, gflop), line| (ms + line.total(), gflop + line.gflop * line.times as f64))
    };
    let vision = [0, 1, 2, 3].map(Part::Stage);
    let groups: [(&str, &[Part], Option<Duration>); 3] = [
        ("vision", &[&vision[..], &[Part::Projection]].concat(), whole.map(|whole| whole.vision)),
        ("prompt: encoder, cross keys and values", &[Part::Encoder, Part::Cross], whole.map(|whole| whole.prompt)),
        ("answer: decode steps", &[Part::Step], whole.map(|whole| whole.answer)),
    ];
    println!("| | sum of operations, ms | measured whole, ms | operations / whole | GFLOP | GFLOP/s of the whole |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (name, parts, measured) in groups {
        let (ms, gflop) = sum(parts);
        let measured = measured.map(milliseconds).map_or_else(
            || format!("not measured | – | {gflop:.1} | –"),
            |whole| format!("{whole:.1} | {:.2} | {gflop:.1} | {:.0}", ms / whole, gflop / whole * 1e3),
        );
        println!("| {name} | {ms:.1} | {measured} |");
    }
}
