//! The CUDA kernels on the GPU at hand: whether they are right, and how near they come to what the card can do.
//!
//! `--parity` compares every kernel with the CPU and ends with exit code 1 where one is wrong; `--ceilings` measures them
//! in bf16 at Florence-2-base's sizes, against a copy and a matrix product of the same run. Without either it does both.
//! `--gpu 1` takes another GPU. The last line of each part is JSON, for `gpu/run.sh`.
//!
//! Bytes and operations are counted as the operation needs them, each operand read once and each result written once: a
//! share of the copy above 100 % means that a tensor stayed in the card's cache.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use candle_core::cuda_backend::cudarc::driver::sys::CUevent_flags;
use candle_core::{DType, Device, Tensor};
use serde_json::{Map, Value};
use tapline::geometry::Size;
use tapline::kernels::cuda::{self, Resizer};
use tapline::kernels::{self, After, AttentionShape, Layer, Norm, Order, Weight, Window};
use tapline::models::device::open_gpu;
use tapline::screenshot::Normalizer;

/// Screenshots that go through the image encoder together.
const BATCH: usize = 32;
/// Fewer, where the form without a kernel of its own needs many times the memory.
const UNFUSED_BATCH: usize = 8;
/// Side of the grid, channels, and heads (and groups) of each stage.
const STAGES: [(usize, usize, usize); 4] = [(192, 128, 4), (96, 256, 8), (48, 512, 16), (24, 1024, 32)];
const WINDOW: usize = 12;
/// Beams of a batch of 8, tokens of the prompt with its image, and a decoder's caches.
const ROWS: usize = 24;
const TOKENS: usize = 592;
const CAPACITY: usize = 32;
const CHANNELS: usize = 768;
const HEADS: usize = 12;
const VOCABULARY: usize = 51_289;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(70)
        }
    }
}

/// Whether every kernel is right, as far as that was asked.
fn run() -> Result<bool> {
    let (mut parity, mut ceilings, mut number) = (false, false, 0);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--parity" => parity = true,
            "--ceilings" => ceilings = true,
            "--gpu" => number = arguments.next().context("`--gpu` needs a number")?.parse().context("`--gpu`")?,
            // Cargo adds it.
            "--bench" => {}
            other => bail!("unknown argument `{other}`: there are `--parity`, `--ceilings` and `--gpu NUMBER`"),
        }
    }
    let both = !parity && !ceilings;
    let device = open_gpu(number)?;
    cuda::load(&device)?;
    let stream = device.as_cuda_device()?.cuda_stream();
    let (major, minor) = stream.context().compute_capability()?;
    println!("{}, compute capability {major}.{minor}\n", stream.context().name()?);
    let mut right = true;
    if parity || both {
        right = compare(&device)?;
    }
    if ceilings || both {
        measure(&device)?;
    }
    Ok(right)
}

fn compare(device: &Device) -> Result<bool> {
    let lines = cuda::parity::run(device)?;
    println!("| kernel | format | sizes | largest difference | allowed | |\n|---|---|---|---:|---:|---|");
    for line in &lines {
        let verdict = if line.holds() { "" } else { "WRONG" };
        let cuda::parity::Line { kernel, format, sizes, difference, tolerance } = line;
        println!("| {kernel} | {format:?} | {sizes} | {difference:.1e} | {tolerance:.1e} | {verdict} |");
    }
    let wrong = lines.iter().filter(|line| !line.holds()).count();
    println!("\n{}", serde_json::json!({ "compared": lines.len(), "wrong": wrong }));
    Ok(wrong == 0)
}

/// What an operation needs at least.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// Bytes read and written, which bound it.
    Bytes(usize),
    /// Multiplications and additions, which bound it.
    Operations(usize),
}

/// What the card can do: GB/s of a copy, reads and writes, and TFLOP/s of a product in bf16.
#[derive(Debug, Clone, Copy)]
struct Ceilings {
    copy: f64,
    product: f64,
}

struct Report<'a> {
    device: &'a Device,
    ceilings: Ceilings,
    json: Map<String, Value>,
}

fn measure(device: &Device) -> Result<()> {
    let ceilings = ceilings(device)?;
    println!("copy {:.0} GB/s, product in bf16 {:.0} TFLOP/s\n", ceilings.copy, ceilings.product);
    println!("| kernel | sizes | µs | GB/s or TFLOP/s | share of the ceiling |\n|---|---|---:|---:|---:|");
    let mut report = Report { device, ceilings, json: Map::new() };
    report.note("copy GB/s", ceilings.copy.round());
    report.note("product TFLOP/s", ceilings.product.round());
    vision(&mut report)?;
    text(&mut report)?;
    unfused(&mut report)?;
    println!("\n{}", Value::Object(report.json));
    Ok(())
}

fn ceilings(device: &Device) -> Result<Ceilings> {
    const NUMBERS: usize = 1 << 28;
    const SIDE: usize = 8192;
    let x = Tensor::zeros(NUMBERS, DType::F32, device)?;
    let copy = seconds(device, || {
        x.copy()?;
        Ok(())
    })?;
    drop(x);
    let (a, b) = (random(&[SIDE, SIDE], device)?, random(&[SIDE, SIDE], device)?.t()?);
    let product = seconds(device, || {
        a.matmul(&b)?;
        Ok(())
    })?;
    Ok(Ceilings { copy: (2 * NUMBERS * 4) as f64 / copy / 1e9, product: 2.0 * (SIDE as f64).powi(3) / product / 1e12 })
}

fn vision(report: &mut Report<'_>) -> Result<()> {
    let device = report.device;
    let (from, to) = (Size::new(1080, 2400), Size::new(768, 768));
    let rgb = Tensor::zeros((2400, 1080, 3), DType::U8, device)?;
    let normalizer = Normalizer::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    let mut resizer = Resizer::new(to, &normalizer, device)?;
    let out = Tensor::zeros((3, 768, 768), DType::BF16, device)?;
    let bytes = 3 * (2400 * 1080 + 2 * 2400 * 768 + 2 * 768 * 768);
    report.line("resize and normalise", &format!("{from} to {to}"), Work::Bytes(bytes), || {
        Ok(resizer.resize_into(&out, &rgb)?)
    })?;
    let pixels = random(&[BATCH, 3, 768, 768], device)?;
    let window = Window { kernel: 7, stride: 4, padding: 3 };
    let bytes = 2 * (pixels.elem_count() + BATCH * 192 * 192 * 147);
    report.line("patches", &format!("{BATCH}x3x768x768"), Work::Bytes(bytes), || {
        cuda::patches(&pixels, Order::Planes, window)?;
        Ok(())
    })?;
    drop(pixels);
    for (side, channels, heads) in STAGES {
        let sizes = format!("{BATCH}x{side}x{side}x{channels}");
        let tokens = BATCH * side * side;
        let x = random(&[BATCH, side, side, channels], device)?;
        let (weight, bias) = (floats(&[9, channels], device)?, floats(&[channels], device)?);
        let both_ways = Work::Bytes(4 * x.elem_count());
        report.line("depthwise", &sizes, both_ways, || {
            kernels::depthwise_residual(x.clone(), &weight, &bias)?;
            Ok(())
        })?;
        let norm = Norm { weight: &bias, bias: &bias, epsilon: 1e-5 };
        report.line("layer norm", &sizes, both_ways, || {
            kernels::layer_norm(&x, norm)?;
            Ok(())
        })?;
        let (narrow, zeros) = (random(&[channels], device)?, x.zeros_like()?);
        report.line("bias and residual", &sizes, Work::Bytes(6 * x.elem_count()), || {
            Ok(cuda::finish(&x, Some(&narrow), After::AddTo(&zeros))?)
        })?;
        report.line("bias and GELU", &sizes, both_ways, || Ok(cuda::finish(&x, Some(&narrow), After::Gelu)?))?;
        drop((x, zeros));
        let qkv = random(&[BATCH, side, side, 3 * channels], device)?;
        let padding = random(&[3 * channels], device)?;
        let operations = Work::Operations(4 * tokens * WINDOW * WINDOW * channels);
        report.line("window attention", &sizes, operations, || {
            kernels::window_attention(&qkv, &padding, WINDOW, heads)?;
            Ok(())
        })?;
        let qkv = qkv.reshape((BATCH, side * side, 3 * channels))?;
        report.line("channel attention", &sizes, Work::Bytes(8 * tokens * channels), || {
            kernels::channel_attention(&qkv, heads)?;
            Ok(())
        })?;
    }
    let (x, position) = (random(&[BATCH, 576, 1024], device)?, random(&[576, 1024], device)?);
    let bytes = 2 * (2 * x.elem_count() + position.elem_count());
    report.line("image tokens", &format!("{BATCH}x576x1024"), Work::Bytes(bytes), || {
        kernels::image_tokens(&x, &position)?;
        Ok(())
    })
}

fn text(report: &mut Report<'_>) -> Result<()> {
    let device = report.device;
    let x = random(&[8, TOKENS, CHANNELS], device)?;
    let operations = |rows: usize, inner: usize, out: usize| Work::Operations(2 * rows * inner * out);
    let weight = Weight::new(random(&[4 * CHANNELS, CHANNELS], device)?)?;
    let bias = random(&[4 * CHANNELS], device)?;
    let layer = Layer { weight: &weight, bias: Some(&bias) };
    let sizes = format!("{}x{CHANNELS} to {}", 8 * TOKENS, 4 * CHANNELS);
    report.line("linear and GELU", &sizes, operations(8 * TOKENS, CHANNELS, 4 * CHANNELS), || {
        kernels::linear(&x, layer, After::Gelu)?;
        Ok(())
    })?;
    let shape = AttentionShape { heads: HEADS, real_keys: None, causal: None };
    let whole = Work::Operations(4 * 8 * TOKENS * TOKENS * CHANNELS);
    report.line("attention", &format!("8x{TOKENS} to {TOKENS}, {HEADS} heads of 64"), whole, || {
        kernels::attention(&x, &x, &x, shape)?;
        Ok(())
    })?;
    let (one, values) = (random(&[8, 3, CHANNELS], device)?, random(&[8, TOKENS, CHANNELS], device)?);
    let keys_and_values = Work::Bytes(2 * (2 * x.elem_count() + 2 * one.elem_count()));
    let sizes = format!("8x3 to {TOKENS}, {HEADS} heads of 64");
    report.line("attention of a decode step", &sizes, keys_and_values, || {
        kernels::attention(&one, &x, &values, shape)?;
        Ok(())
    })?;

    let (layers, filled) = (12, 9);
    let caches = random(&[layers, ROWS, CAPACITY, CHANNELS], device)?;
    let out = caches.copy()?;
    let from: Vec<i32> = (0..).map(|row: i32| row / 3 * 3).take(ROWS).collect();
    let from = Tensor::from_vec(from, ROWS, device)?;
    let length = Tensor::new(&[i32::try_from(filled)?], device)?;
    let bytes = Work::Bytes(4 * layers * ROWS * filled * CHANNELS);
    report.line("reorder", &format!("{layers}x{ROWS}x{filled}x{CHANNELS}"), bytes, || {
        Ok(cuda::reorder_into(&out, &caches, &from, &length)?)
    })?;
    let (cache, new) = (caches.get(0)?, random(&[ROWS, 1, CHANNELS], device)?);
    report.line("append", &format!("{ROWS}x1x{CHANNELS}"), Work::Bytes(4 * ROWS * CHANNELS), || {
        Ok(cuda::append_into(&cache, &new, &length)?)
    })?;

    let logits = floats(&[ROWS, VOCABULARY], device)?;
    let ranges: Vec<i32> = [50_269, 51_269].repeat(ROWS);
    let ranges = Tensor::from_vec(ranges, (ROWS, 2), device)?;
    let once = Work::Bytes(4 * logits.elem_count());
    report.line("best location", &format!("{ROWS}x{VOCABULARY}"), once, || {
        cuda::best_location(&logits, &ranges)?;
        Ok(())
    })?;
    report.line("six highest", &format!("{ROWS}x{VOCABULARY}"), once, || {
        cuda::highest(&logits, 6)?;
        Ok(())
    })
}

/// Window attention by its kernel and in tensor operations, on the same numbers.
fn unfused(report: &mut Report<'_>) -> Result<()> {
    let device = report.device;
    for (side, channels, heads) in [STAGES[0], STAGES[2]] {
        let qkv = random(&[UNFUSED_BATCH, side, side, 3 * channels], device)?;
        let padding = random(&[3 * channels], device)?;
        let fused = seconds(device, || {
            kernels::window_attention(&qkv, &padding, WINDOW, heads)?;
            Ok(())
        })?;
        let unfused = seconds(device, || {
            cuda::parity::unfused_window_attention(&qkv, &padding, WINDOW, heads)?;
            Ok(())
        })?;
        let sizes = format!("{UNFUSED_BATCH}x{side}x{side}x{channels}");
        let times = unfused / fused;
        println!(
            "| window attention in tensor operations | {sizes} | {:.1} | | {times:.1} times as long |",
            unfused * 1e6
        );
        report.note(&format!("window attention {sizes}, times the unfused form"), (times * 10.0).round() / 10.0);
    }
    Ok(())
}

impl Report<'_> {
    /// Measures an operation and prints its line.
    fn line(&mut self, name: &str, sizes: &str, work: Work, operation: impl FnMut() -> Result<()>) -> Result<()> {
        let time = seconds(self.device, operation).with_context(|| format!("{name} {sizes}"))?;
        let (rate, unit, ceiling, of) = match work {
            Work::Bytes(bytes) => (bytes as f64 / time / 1e9, "GB/s", self.ceilings.copy, "copy"),
            Work::Operations(count) => (count as f64 / time / 1e12, "TFLOP/s", self.ceilings.product, "product"),
        };
        let share = 100.0 * rate / ceiling;
        println!("| {name} | {sizes} | {:.1} | {rate:.0} {unit} | {share:.0} % of the {of} |", time * 1e6);
        self.note(&format!("{name} {sizes}, % of the {of}"), share.round());
        Ok(())
    }

    fn note(&mut self, name: &str, figure: f64) {
        self.json.insert(name.to_owned(), figure.into());
    }
}

/// Seconds that an operation takes on the device, one call after another: the median of some rounds. Where the processor
/// needs longer to launch it than the device to do it, that is what is measured.
fn seconds(device: &Device, mut operation: impl FnMut() -> Result<()>) -> Result<f64> {
    const ROUNDS: usize = 7;
    /// Long enough that the events' own time does not count.
    const ROUND: f64 = 0.01;
    const MOST: f64 = 2000.0;
    let stream = device.as_cuda_device()?.cuda_stream();
    let mut round = |calls: usize| -> Result<f64> {
        let start = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        for _ in 0..calls {
            operation()?;
        }
        let end = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        Ok(f64::from(start.elapsed_ms(&end)?) / 1e3 / calls as f64)
    };
    // The first calls load code, allocate, and let cuBLAS choose.
    round(3)?;
    let estimate = round(3)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let calls = (ROUND / estimate.max(1e-9)).clamp(1.0, MOST) as usize;
    let mut times = (0..ROUNDS).map(|_| round(calls)).collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}

/// Random numbers in bf16.
fn random(shape: &[usize], device: &Device) -> Result<Tensor> {
    Ok(floats(shape, device)?.to_dtype(DType::BF16)?)
}

/// Random numbers in f32.
fn floats(shape: &[usize], device: &Device) -> Result<Tensor> {
    Ok(Tensor::randn(0f32, 1f32, shape, device)?)
}
