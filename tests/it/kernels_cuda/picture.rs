//! From bytes to patches: resize, normalisation, convolutions.

use tapline::geometry::Size;
use tapline::kernels::{self, Order, Window};
use tapline::screenshot::{Normalizer, Taps, resize};

use super::library::{Buffer, Launch};
use super::{FORMATS, Format, ROUNDED, Tolerance, assert_close, random, values};

/// The two kernels as an engine runs them: planes (3, `to.height`, `to.width`).
fn resized(rgb: &[u8], from: Size, to: Size, table: &[f32], format: Format) -> Buffer {
    let (height, width) = (from.height as usize, from.width as usize);
    let (to_height, to_width) = (to.height as usize, to.width as usize);
    let axis = |from, to| {
        let taps = Taps::new(from, to);
        (Buffer::of(&taps.first), Buffer::of(&taps.count), Buffer::of(&taps.weights))
    };
    let mut picture = Buffer::of(rgb);
    if width != to_width {
        let (first, count, weights) = axis(width, to_width);
        let between = Buffer::filled(height * to_width * 3);
        Launch::new("resize_horizontal")
            .buffer(&picture)
            .buffer(&between)
            .buffer(&first)
            .buffer(&count)
            .buffer(&weights)
            .int(height)
            .int(width)
            .int(to_width)
            .run([to_width.div_ceil(32), height.div_ceil(8), 1], [32, 8]);
        picture = between;
    }
    let (first, count, weights) = axis(height, to_height);
    let out = Buffer::empty(3 * to_height * to_width, format);
    Launch::of("resize_vertical", format)
        .buffer(&picture)
        .buffer(&out)
        .buffer(&first)
        .buffer(&count)
        .buffer(&weights)
        .buffer(&Buffer::of(table))
        .int(to_height)
        .int(to_width)
        .run([to_width.div_ceil(32), to_height.div_ceil(8), 1], [32, 8]);
    out
}

#[test]
fn resize_is_pillows_bit_for_bit() {
    let normalizer = Normalizer::new([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    for (from, to) in [
        ((1, 1), (1, 1)),
        ((1, 1), (3, 2)),
        ((3, 2), (5, 7)),
        ((7, 5), (7, 5)),
        ((33, 17), (33, 16)),
        ((31, 64), (32, 64)),
        ((64, 31), (33, 65)),
        ((108, 240), (77, 77)),
        ((300, 20), (9, 9)),
    ] {
        let (from, to) = (Size::new(from.0, from.1), Size::new(to.0, to.1));
        let noise = values(&random(&[from.height as usize, from.width as usize, 3], 1));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
        let rgb: Vec<u8> = noise.iter().map(|x| ((x + 1.0) * 127.9) as u8).collect();
        let planes = normalizer.planes(&resize(&rgb, from, to));
        let shape = [3, to.height as usize, to.width as usize];
        let expected = candle_core::Tensor::from_vec(planes, &shape, &candle_core::Device::Cpu).unwrap();
        for format in FORMATS {
            let got = resized(&rgb, from, to, normalizer.table(), format).to_tensor(&shape, format);
            assert_eq!(values(&got), values(&format.round(&expected)), "{from} to {to} in {format:?}");
        }
    }
}

#[test]
fn depthwise_equals_the_reference() {
    for (batch, height, width, channels) in [
        (1, 1, 1, 1),
        (1, 1, 5, 3),
        (2, 5, 1, 8),
        (1, 2, 2, 33),
        (2, 7, 9, 31),
        (1, 8, 8, 64),
        (1, 9, 17, 12),
        (1, 15, 16, 6),
        (3, 3, 4, 65),
        (1, 25, 24, 128),
    ] {
        let (x, w, b) =
            (random(&[batch, height, width, channels], 1), random(&[9, channels], 2), random(&[channels], 3));
        for format in FORMATS {
            let expected = kernels::depthwise_residual(format.round(&x).copy().unwrap(), &w, &b).unwrap();
            let out = Buffer::empty(x.elem_count(), format);
            let threads = width.div_ceil(2) * channels.div_ceil(4);
            Launch::of("depthwise", format)
                .buffer(&Buffer::tensor(&x, format))
                .buffer(&Buffer::tensor(&w, Format::F32))
                .buffer(&Buffer::tensor(&b, Format::F32))
                .buffer(&out)
                .int(height)
                .int(width)
                .int(channels)
                .run([threads.div_ceil(128), height.div_ceil(8), batch], [128, 1]);
            assert_close(&out.to_tensor(x.dims(), format), &expected, format, ROUNDED, &format!("{:?}", x.dims()));
        }
    }
}

#[test]
fn patches_are_what_lies_under_the_kernel() {
    for (batch, height, width, channels, kernel, stride, padding) in [
        (1, 1, 1, 1, 1, 1, 0),
        (2, 5, 7, 3, 3, 2, 1),
        (1, 9, 8, 3, 7, 4, 3),
        (1, 2, 2, 5, 3, 2, 1),
        (2, 6, 6, 4, 2, 2, 0),
        (1, 8, 7, 8, 3, 1, 1),
        (1, 24, 24, 16, 3, 2, 1),
    ] {
        let window = Window { kernel, stride, padding };
        let (rows, columns) = (window.positions(height), window.positions(width));
        for order in [Order::Planes, Order::ChannelsLast] {
            let (planes, pixel) = if order == Order::Planes { (channels, 1) } else { (1, channels) };
            let x = random(&[batch, planes, height, width, pixel], 1);
            let source = values(&x);
            let mut expected = Vec::new();
            for position in 0..batch * rows * columns {
                let (image, row, column) = (position / (rows * columns), position / columns % rows, position % columns);
                for place in 0..planes * kernel * kernel * pixel {
                    let (plane, i) = (place / (kernel * kernel * pixel), place / (kernel * pixel) % kernel);
                    let (j, part) = (place / pixel % kernel, place % pixel);
                    let (y, x) = (row * stride + i, column * stride + j);
                    let inside = (padding..height + padding).contains(&y) && (padding..width + padding).contains(&x);
                    expected.push(if inside {
                        let (y, x) = (y - padding, x - padding);
                        source[(((image * planes + plane) * height + y) * width + x) * pixel + part]
                    } else {
                        0.0
                    });
                }
            }
            let shape = [batch, rows, columns, planes * kernel * kernel * pixel];
            let count = expected.len();
            let expected = candle_core::Tensor::from_vec(expected, &shape, &candle_core::Device::Cpu).unwrap();
            for format in FORMATS {
                let (input, out) = (Buffer::tensor(&x, format), Buffer::empty(count, format));
                let launch = Launch::of("patches", format).buffer(&input).buffer(&out).long(count);
                let sizes = [planes, height, width, pixel, kernel, stride, padding, rows, columns];
                sizes.into_iter().fold(launch, Launch::int).run([count.div_ceil(1024), 1, 1], [256, 1]);
                let got = out.to_tensor(&shape, format);
                assert_eq!(values(&got), values(&format.round(&expected)), "{:?} {window:?} {format:?}", x.dims());
            }
        }
    }
}

#[test]
fn image_tokens_have_their_mean_in_front() {
    for (batch, tokens, channels) in [(1, 1, 1), (2, 7, 3), (1, 8, 32), (3, 9, 33), (1, 144, 96), (1, 65, 31)] {
        let (x, position) = (random(&[batch, tokens, channels], 1), random(&[tokens, channels], 2));
        for format in FORMATS {
            let sum = format.round(&format.round(&x).broadcast_add(&format.round(&position)).unwrap());
            let mean = sum.mean_keepdim(1).unwrap();
            let expected = candle_core::Tensor::cat(&[&mean, &sum], 1).unwrap();
            let out = Buffer::empty(expected.elem_count(), format);
            Launch::of("image_tokens", format)
                .buffer(&Buffer::tensor(&x, format))
                .buffer(&Buffer::tensor(&position, format))
                .buffer(&out)
                .int(tokens)
                .int(channels)
                .run([channels.div_ceil(32), batch, 1], [32, 8]);
            let got = out.to_tensor(expected.dims(), format);
            assert_close(&got, &expected, format, Tolerance { f32: 1e-6, scale: 0.0 }, &format!("{:?}", x.dims()));
        }
    }
}
