//! A PNG of 1080x2400 to the model's input, the whole way of a screenshot: decode, resize, normalise. On the engine's own
//! pool of preparing threads, as many independent screenshots at once as asked for.
//!
//!     cargo bench --bench prepare -- screenshot.png      a table over 1 and 2 threads
//!     cargo bench --bench prepare -- --worker            for compare/preprocess.py
//!
//! A worker reads lines from standard input. `FILE THREADS COUNT` prepares COUNT screenshots of that file at once on so many
//! threads and prints the milliseconds for each of them; `FILE > OUT` writes the numbers, f32 in the machine's order.

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

use tapline::engine::pool::CpuPool;
use tapline::geometry::Size;
use tapline::screenshot::{DecodeError, Limits, Normalizer, decode, resize};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const INPUT: Size = Size::new(768, 768);
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];
/// Screenshots prepared at once in the table, and measurements of which the median is taken.
const SCREENSHOTS: usize = 8;
const RUNS: usize = 15;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.as_slice() {
        [flag] if flag == "--worker" => work(),
        [file] => table(file),
        _ => Err("name one PNG file, or `--worker`".into()),
    }
}

/// What the engine does with a screenshot before the model sees it.
fn prepare(file: &[u8]) -> Result<Vec<f32>, DecodeError> {
    let shot = decode(file, &Limits::default())?;
    let rgb = resize(shot.rgb(), shot.size(), INPUT);
    Ok(Normalizer::new(MEAN, DEVIATION).planes(&rgb))
}

/// Runs on pools of different sizes.
struct Bench {
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    fn new() -> Outcome<Self> {
        Ok(Self { runtime: tokio::runtime::Builder::new_current_thread().build()? })
    }

    /// Milliseconds for each of `count` screenshots that are prepared at once.
    fn milliseconds(&self, pool: &CpuPool, file: &bytes::Bytes, count: usize) -> Outcome<f64> {
        self.runtime.block_on(async {
            let start = Instant::now();
            // All are handed in before the first is waited for.
            let jobs: Vec<_> = (0..count)
                .map(|_| {
                    let file = file.clone();
                    pool.run(move || prepare(&file))
                })
                .collect();
            for done in futures_util::future::join_all(jobs).await {
                std::hint::black_box(done?.ok_or("preparing panicked")??);
            }
            Ok(start.elapsed().as_secs_f64() * 1e3 / count as f64)
        })
    }
}

fn table(file: &str) -> Outcome<()> {
    let (bench, png) = (Bench::new()?, bytes::Bytes::from(std::fs::read(file)?));
    println!("| threads | screenshots at once | ms each, median of {RUNS} |\n|---:|---:|---:|");
    for (threads, count) in [(1, 1), (2, 1), (1, SCREENSHOTS), (2, SCREENSHOTS)] {
        let pool = CpuPool::new(threads, SCREENSHOTS)?;
        let mut times = (0..RUNS).map(|_| bench.milliseconds(&pool, &png, count)).collect::<Outcome<Vec<f64>>>()?;
        times.sort_by(f64::total_cmp);
        println!("| {threads} | {count} | {:.2} |", times[RUNS / 2]);
    }
    Ok(())
}

fn work() -> Outcome<()> {
    let bench = Bench::new()?;
    let mut pools: Vec<(usize, CpuPool)> = Vec::new();
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            [file, ">", out] => {
                let numbers = prepare(&std::fs::read(file)?)?;
                std::fs::write(PathBuf::from(out), numbers.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>())?;
                writeln!(output, "{}", numbers.len())?;
            }
            [file, threads, count] => {
                let (threads, count) = (threads.parse()?, count.parse()?);
                if !pools.iter().any(|(size, _)| *size == threads) {
                    pools.push((threads, CpuPool::new(threads, 64)?));
                }
                let pool = pools.iter().find(|(size, _)| *size == threads).map(|(_, pool)| pool).ok_or("no pool")?;
                let png = std::fs::read(file)?.into();
                writeln!(output, "{}", bench.milliseconds(pool, &png, count)?)?;
            }
            _ => return Err(format!("`{line}` is no order").into()),
        }
        output.flush()?;
    }
    Ok(())
}
