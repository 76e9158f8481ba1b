//! The way of a screenshot to the model's input: PNG decode, resize, normalise. The peer is `fast_image_resize`, whose
//! bicubic is not Pillow's (it rounds its weights to 16 bits and may run the passes in the other order) and is among
//! the fastest on a CPU. Our pool has one thread here, as the peer has.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use tapline::geometry::Size;
use tapline::screenshot::{Limits, Normalizer, decode, resize};

const PHONE: Size = Size::new(1080, 2400);
const DESKTOP: Size = Size::new(1920, 1080);
const PAIRS: [(Size, Size); 3] =
    [(PHONE, Size::new(768, 768)), (DESKTOP, Size::new(768, 768)), (PHONE, Size::new(256, 256))];

/// Flat areas, edges, a gradient and some noise: roughly what a screen is made of, so that PNG compresses it as usual.
#[expect(clippy::cast_possible_truncation, reason = "a few million pixels, and levels below 256")]
fn screen(size: Size) -> Vec<u8> {
    let mut state = 1_u32;
    let mut rgb = Vec::with_capacity(size.pixels() as usize * 3);
    for y in 0..size.height {
        for x in 0..size.width {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = if (x / 200 + y / 300) % 5 == 0 { (state >> 24) as u8 / 16 } else { 0 };
            let text = y % 40 < 14 && (x / 3 * 7 + y / 4 * 11) % 13 < 4;
            let base = if text { 30 } else { 200 + (y * 40 / size.height) as u8 };
            rgb.extend([base + noise, base, if x / 100 % 2 == 0 { base } else { 255 - base }]);
        }
    }
    rgb
}

fn png(rgb: &[u8], size: Size, color: image::ExtendedColorType) -> Vec<u8> {
    use image::ImageEncoder;
    let mut file = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut file);
    encoder.write_image(rgb, size.width, size.height, color).expect("a PNG of our own");
    file
}

fn peer(resizer: &mut Resizer, rgb: &[u8], from: Size, to: Size) -> Vec<u8> {
    let source = ImageRef::new(from.width, from.height, rgb, PixelType::U8x3).expect("RGB of that size");
    let mut out = Image::new(to.width, to.height, PixelType::U8x3);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom));
    resizer.resize(&source, &mut out, &options).expect("the same pixel type");
    out.into_vec()
}

/// The quickest of several runs, which a busy machine disturbs least.
fn quickest(mut run: impl FnMut()) -> Duration {
    let times = (0..30).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    times.min().unwrap_or_default()
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of our own")
}

fn resizes(criterion: &mut Criterion) {
    let (one, two) = (pool(1), pool(2));
    let mut resizer = Resizer::new();
    for (from, to) in PAIRS {
        let rgb = screen(from);
        let ours = quickest(|| drop(black_box(one.install(|| resize(black_box(&rgb), from, to)))));
        let both = quickest(|| drop(black_box(two.install(|| resize(black_box(&rgb), from, to)))));
        let theirs = quickest(|| drop(black_box(peer(&mut resizer, black_box(&rgb), from, to))));
        let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
        println!("{from} to {to}: {ours:.2?} (two threads {both:.2?}), peer {theirs:.2?}, ratio {ratio:.2}");

        let mut group = criterion.benchmark_group(format!("resize {from} to {to}"));
        group.throughput(Throughput::Elements(from.pixels()));
        group.bench_function("exact", |bench| bench.iter(|| one.install(|| resize(black_box(&rgb), from, to))));
        group.bench_function("exact, two threads", |bench| {
            bench.iter(|| two.install(|| resize(black_box(&rgb), from, to)));
        });
        group.bench_function("peer", |bench| bench.iter(|| peer(&mut resizer, black_box(&rgb), from, to)));
        group.finish();
    }
}

fn decodes(criterion: &mut Criterion) {
    let rgb = screen(PHONE);
    let rgba: Vec<u8> = rgb.as_chunks::<3>().0.iter().flat_map(|&[r, g, b]| [r, g, b, 255]).collect();
    let files = [
        ("RGB", png(&rgb, PHONE, image::ExtendedColorType::Rgb8)),
        ("RGBA", png(&rgba, PHONE, image::ExtendedColorType::Rgba8)),
    ];
    let mut group = criterion.benchmark_group("decode PNG 1080x2400");
    group.throughput(Throughput::Elements(PHONE.pixels()));
    for (name, file) in files {
        group.bench_function(name, |bench| bench.iter(|| decode(black_box(&file), &Limits::default())));
    }
    group.finish();
}

fn normalizes(criterion: &mut Criterion) {
    let rgb = screen(Size::new(768, 768));
    let normalizer = Normalizer::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    let mut group = criterion.benchmark_group("normalise 768x768");
    for threads in [1, 2] {
        let pool = pool(threads);
        group.bench_function(format!("{threads} threads"), |bench| {
            let place = || vec![0.0; rgb.len()];
            bench.iter_batched_ref(
                place,
                |planes| pool.install(|| normalizer.write_planes(black_box(&rgb), planes)),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group! {
    name = screenshots;
    config = Criterion::default().measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_secs(1));
    targets = resizes, decodes, normalizes
}
criterion_main!(screenshots);
