//! The two attentions of the image encoder, and layer normalisation.

use candle_core::Tensor;
use tapline::kernels::{self, Norm};

use super::library::{Buffer, Launch};
use super::{FORMATS, Format, Tolerance, assert_close, random};

/// The kernel's result for qkv (batch, height, width, 3 channels).
fn attended(qkv: &Tensor, padding: &Tensor, window: usize, heads: usize, format: Format) -> Tensor {
    let (batch, height, width, all) = qkv.dims4().unwrap();
    let channels = all / 3;
    let out = Buffer::empty(batch * height * width * channels, format);
    Launch::of("window_attention", format)
        .buffer(&Buffer::tensor(qkv, format))
        .buffer(&Buffer::tensor(padding, format))
        .buffer(&out)
        .int(height)
        .int(width)
        .int(channels)
        .int(heads)
        .int(window)
        .float(((channels / heads) as f32).powf(-0.5))
        .run([height.div_ceil(window) * width.div_ceil(window), heads, batch], [160, 1]);
    out.to_tensor(&[batch, height, width, channels], format)
}

#[test]
fn window_attention_equals_the_reference() {
    for (batch, height, width, window, heads, size) in [
        (1, 1, 1, 1, 1, 1),
        (2, 3, 6, 3, 2, 4),
        (1, 5, 4, 2, 1, 2),
        (1, 12, 24, 12, 2, 32),
        (1, 13, 11, 12, 1, 32),
        (1, 15, 10, 5, 3, 7),
        (2, 7, 9, 7, 1, 48),
        (1, 8, 8, 8, 2, 16),
        (1, 14, 13, 14, 1, 33),
        (1, 9, 9, 9, 1, 64),
        // More keys than a tile holds in each of the formats.
        (1, 17, 16, 17, 1, 31),
    ] {
        let (qkv, padding) = (random(&[batch, height, width, 3 * heads * size], 1), random(&[3 * heads * size], 2));
        for format in FORMATS {
            let (rounded, rounded_padding) = (format.round(&qkv), format.round(&padding));
            let expected = kernels::window_attention(&rounded, &rounded_padding, window, heads).unwrap();
            let got = attended(&qkv, &padding, window, heads, format);
            let case = format!("{:?}, windows of {window}, {heads} heads", qkv.dims());
            assert_close(&got, &expected, format, Tolerance { f32: 1e-5, scale: 1.0 }, &case);
        }
    }
}

#[test]
fn large_scores_keep_the_softmax_finite() {
    // Scores of some hundreds: without the largest taken off first, their exponentials are infinite.
    let (heads, size, window) = (2, 32, 4);
    let qkv = (random(&[1, window, window, 3 * heads * size], 3) * 20.0).unwrap();
    for format in FORMATS {
        let rounded = format.round(&qkv);
        let padding = Tensor::zeros(3 * heads * size, candle_core::DType::F32, &candle_core::Device::Cpu).unwrap();
        let expected = kernels::window_attention(&rounded, &padding, window, heads).unwrap();
        let got = attended(&qkv, &padding, window, heads, format);
        assert_close(&got, &expected, format, Tolerance { f32: 1e-3, scale: 20.0 }, "large scores");
    }
}

#[test]
fn channel_attention_equals_the_reference() {
    for (batch, tokens, groups, size) in [
        (1, 1, 1, 1),
        (2, 5, 2, 3),
        (1, 31, 1, 32),
        (1, 257, 2, 32),
        (2, 64, 1, 33),
        (1, 65, 1, 64),
        (3, 513, 2, 8),
        (1, 1025, 1, 17),
    ] {
        let (channels, splits) = (groups * size, usize::div_ceil(tokens, 256).min(64));
        let qkv = random(&[batch, tokens, 3 * channels], 1);
        for format in FORMATS {
            let expected = kernels::channel_attention(&format.round(&qkv), groups).unwrap();
            let input = Buffer::tensor(&qkv, format);
            let partial = Buffer::words(batch * groups * splits * size * size);
            let weights = Buffer::words(batch * groups * size * size);
            let out = Buffer::empty(expected.elem_count(), format);
            Launch::of("channel_attention_logits", format)
                .buffer(&input)
                .buffer(&partial)
                .int(tokens)
                .int(channels)
                .int(groups)
                .float((tokens as f32).powf(-0.5))
                .run([splits, groups, batch], [256, 1]);
            let rows = batch * groups * size;
            Launch::new("channel_attention_softmax")
                .buffer(&partial)
                .buffer(&weights)
                .int(rows)
                .int(splits)
                .int(size)
                .run([rows.div_ceil(8), 1, 1], [256, 1]);
            Launch::of("channel_attention_apply", format)
                .buffer(&input)
                .buffer(&weights)
                .buffer(&out)
                .int(tokens)
                .int(channels)
                .int(groups)
                .run([tokens.div_ceil(64), groups, batch], [256, 1]);
            let got = out.to_tensor(expected.dims(), format);
            let case = format!("{:?}, {groups} groups", qkv.dims());
            assert_close(&got, &expected, format, Tolerance { f32: 2e-5, scale: 0.0 }, &case);
        }
    }
}

/// x, what is added to it, and whether the sum is kept: the operands of one normalisation.
struct Sum {
    x: Tensor,
    added: Option<Tensor>,
    residual: Option<Tensor>,
}

impl Sum {
    fn new(rows: usize, channels: usize, added: bool, residual: bool) -> Self {
        // Far from zero, where a difference of squares would lose its digits.
        let x = ((random(&[rows, channels], 1) * 3.0).unwrap() + 50.0).unwrap();
        Self {
            x,
            added: added.then(|| random(&[channels], 2)),
            residual: residual.then(|| random(&[rows, channels], 3)),
        }
    }

    fn in_format(&self, format: Format) -> Tensor {
        let mut sum = format.round(&self.x);
        for term in [&self.added, &self.residual].into_iter().flatten() {
            sum = sum.broadcast_add(&format.round(term)).unwrap();
        }
        format.round(&sum)
    }
}

#[test]
fn layer_norm_equals_the_reference() {
    for (rows, channels) in
        [(1, 1), (1, 3), (2, 7), (31, 8), (4, 36), (33, 9), (5, 128), (3, 1023), (2, 1024), (1, 1025), (2, 1028)]
    {
        let (weight, bias) = (random(&[channels], 4), random(&[channels], 5));
        let norm = Norm { weight: &weight, bias: &bias, epsilon: 1e-5 };
        for (added, residual, kept) in
            [(false, false, false), (true, true, true), (false, true, true), (true, false, false), (true, true, false)]
        {
            let sum = Sum::new(rows, channels, added, residual);
            for format in FORMATS {
                let expected_sum = sum.in_format(format);
                let expected = kernels::layer_norm(&expected_sum, norm).unwrap();
                let [added, residual] =
                    [&sum.added, &sum.residual].map(|term| term.as_ref().map(|term| Buffer::tensor(term, format)));
                let (kept, out) =
                    (kept.then(|| Buffer::empty(rows * channels, format)), Buffer::empty(rows * channels, format));
                Launch::of("layer_norm", format)
                    .buffer(&Buffer::tensor(&sum.x, format))
                    .optional(added.as_ref())
                    .optional(residual.as_ref())
                    .optional(kept.as_ref())
                    .buffer(&Buffer::tensor(&weight, Format::F32))
                    .buffer(&Buffer::tensor(&bias, Format::F32))
                    .buffer(&out)
                    .int(rows)
                    .int(channels)
                    .float(1e-5)
                    .run([rows.div_ceil(4), 1, 1], [128, 1]);
                let case = format!("{rows} rows of {channels}");
                let got = out.to_tensor(&[rows, channels], format);
                assert_close(&got, &expected, format, Tolerance { f32: 5e-5, scale: 0.0 }, &case);
                if let Some(kept) = kept {
                    let kept = kept.to_tensor(&[rows, channels], format);
                    // In f32 terms may be added in another order.
                    assert_close(&kept, &expected_sum, format, Tolerance { f32: 1e-5, scale: 0.0 }, &case);
                }
            }
        }
    }
}
