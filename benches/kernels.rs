//! The tensor operations at the sizes of Florence-2-base's stages. Elements are counted, so that figures of different sizes
//! compare; the depthwise convolution is measured against a plain loop of the same operations in the same run.

use std::hint::black_box;

use candle_core::{Device, Tensor};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tapline::kernels::{self, After, AttentionShape, Layer, Norm, Weight};

fn random(shape: &[usize]) -> Tensor {
    Tensor::randn(0f32, 1f32, shape, &Device::Cpu).expect("a random tensor")
}

fn depthwise(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("depthwise");
    for (side, channels) in [(192, 128), (48, 512), (24, 1024)] {
        let (x, weight, bias) = (random(&[1, side, side, channels]), random(&[9, channels]), random(&[channels]));
        group.throughput(Throughput::Elements((side * side * channels) as u64));
        group.bench_function(format!("{side}x{side}x{channels}"), |bencher| {
            // In place: the numbers grow from one turn to the next, which the loop does not notice.
            bencher.iter(|| kernels::depthwise_residual(black_box(x.clone()), &weight, &bias));
        });
        let numbers = random(&[side * side * channels]).to_vec1::<f32>().expect("numbers");
        let taps = weight.flatten_all().and_then(|w| w.to_vec1::<f32>()).expect("numbers");
        group.bench_function(format!("{side}x{side}x{channels} plain loop"), |bencher| {
            bencher.iter(|| plain_depthwise(black_box(&numbers), &taps, side, channels));
        });
    }
    group.finish();
}

/// One thread, one output at a time.
fn plain_depthwise(x: &[f32], weight: &[f32], side: usize, channels: usize) -> Vec<f32> {
    let mut out = x.to_vec();
    for y in 0..side {
        for column in 0..side {
            for (dy, dx) in (0..9).map(|tap| (tap / 3, tap % 3)) {
                let (from_y, from_x) = (y + dy, column + dx);
                if from_y == 0 || from_x == 0 || from_y > side || from_x > side {
                    continue;
                }
                let from = ((from_y - 1) * side + from_x - 1) * channels;
                let to = (y * side + column) * channels;
                for c in 0..channels {
                    out[to + c] += x[from + c] * weight[(dy * 3 + dx) * channels + c];
                }
            }
        }
    }
    out
}

fn attention(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("attention");
    let windows = random(&[1, 48, 48, 3 * 512]);
    let padding = random(&[3 * 512]);
    group.bench_function("windows 48x48x512", |bencher| {
        bencher.iter(|| kernels::window_attention(black_box(&windows), &padding, 12, 16));
    });
    let channels = windows.reshape((1, 48 * 48, 3 * 512)).expect("a view");
    group.bench_function("channels 2304x512", |bencher| {
        bencher.iter(|| kernels::channel_attention(black_box(&channels), 16));
    });
    let x = random(&[1, 592, 768]);
    let shape = AttentionShape { heads: 12, real_keys: None, causal: None };
    group.bench_function("encoder 592x768", |bencher| {
        bencher.iter(|| kernels::attention(black_box(&x), &x, &x, shape));
    });
    group.finish();
}

fn rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rows");
    let (x, weight, bias) = (random(&[2304, 512]), random(&[512]), random(&[512]));
    let norm = Norm { weight: &weight, bias: &bias, epsilon: 1e-5 };
    group.throughput(Throughput::Elements(2304 * 512));
    group.bench_function("layer norm 2304x512", |bencher| {
        bencher.iter(|| kernels::layer_norm(black_box(&x), norm));
    });
    group.bench_function("gelu 2304x512", |bencher| bencher.iter(|| kernels::gelu(black_box(&x))));
    let weights =
        [random(&[2048, 512]), random(&[512, 2048])].map(|weight| Weight::new(weight).expect("two dimensions"));
    let biases = [random(&[2048]), random(&[512])];
    let [up, down] = [0, 1].map(|i| Layer { weight: &weights[i], bias: Some(&biases[i]) });
    group.throughput(Throughput::Elements(2 * 2304 * 512 * 2048));
    group.bench_function("linear + gelu 2304x512x2048 (operations)", |bencher| {
        bencher.iter(|| kernels::linear(black_box(&x), up, After::Gelu));
    });
    group.throughput(Throughput::Elements(4 * 2304 * 512 * 2048));
    group.bench_function("mlp 2304x512x2048 (operations)", |bencher| {
        bencher.iter(|| kernels::mlp(black_box(x.clone()), norm, up, down));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = depthwise, attention, rows
}
criterion_main!(benches);
