//! Self-attention inside square windows of a grid, without shift, mask or relative positions (DaViT's spatial blocks).

use candle_core::{DType, Device, Result, Tensor};
use rayon::prelude::*;

use super::arithmetic::exponentials;
use super::number::Number;
use super::numbers;
use super::packed::{PANEL, Panels, Rows, Start, Target, multiply, pack, packed_length, panel_length};

/// For each window and head softmax(q k^T / sqrt(head size)) v; qkv is (batch, height, width, 3 channels), the result
/// (batch, height, width, channels) in the type of qkv. Logits and softmax are in f32.
///
/// A grid whose sides are no multiples of `window` is filled up below and to the right with places whose q, k and v are
/// `padding` (3 channels): they are attended to like any other.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn window_attention(qkv: &Tensor, padding: &Tensor, window: usize, heads: usize) -> Result<Tensor> {
    let (_, _, _, channels) = qkv.dims4()?;
    if window == 0 || heads == 0 || channels % (3 * heads) != 0 || padding.dims() != [channels] {
        candle_core::bail!("windows of {window} with {heads} heads do not fit {:?}", qkv.dims());
    }
    #[cfg(feature = "cuda")]
    if qkv.device().is_cuda() {
        return super::cuda::window_attention(qkv, padding, window, heads);
    }
    if super::is_fast(qkv) { fast(qkv, padding, window, heads) } else { reference(qkv, padding, window, heads) }
}

pub(super) fn reference(qkv: &Tensor, padding: &Tensor, window: usize, heads: usize) -> Result<Tensor> {
    let (batch, real_height, real_width, channels) = qkv.dims4()?;
    let (height, width) = (real_height.next_multiple_of(window), real_width.next_multiple_of(window));
    let mut filled = qkv.clone();
    for (dim, rows, columns) in [(2, real_height, width - real_width), (1, height - real_height, width)] {
        if rows * columns > 0 {
            filled = Tensor::cat(&[&filled, &padding.broadcast_as((batch, rows, columns, channels))?], dim)?;
        }
    }
    let (rows, columns, tokens, channels) = (height / window, width / window, window * window, channels / 3);
    let size = channels / heads;
    let parts = filled
        .to_dtype(DType::F32)?
        .reshape((batch, rows, window, columns, window, 3 * channels))?
        .permute([0, 1, 3, 2, 4, 5])? // (batch, rows, columns, window, window, 3 channels)
        .reshape((batch * rows * columns, tokens, 3, heads, size))?
        .permute((2, 0, 3, 1, 4))? // (3, windows, heads, tokens, size)
        .contiguous()?;
    let (q, k, v) = ((parts.get(0)? * (size as f64).powf(-0.5))?, parts.get(1)?, parts.get(2)?);
    let weights = candle_nn::ops::softmax_last_dim(&q.matmul(&k.t()?)?)?; // (windows, heads, tokens, tokens)
    weights
        .matmul(&v)? // (windows, heads, tokens, size)
        .transpose(1, 2)?
        .reshape((batch, rows, columns, window, window, channels))?
        .permute([0, 1, 3, 2, 4, 5])?
        .reshape((batch, height, width, channels))?
        .narrow(1, 0, real_height)?
        .narrow(2, 0, real_width)?
        .to_dtype(qkv.dtype())?
        .contiguous()
}

fn fast(qkv: &Tensor, padding: &Tensor, window: usize, heads: usize) -> Result<Tensor> {
    let (batch, height, width, all) = qkv.dims4()?;
    let (rows, columns, tokens) = (height.div_ceil(window), width.div_ceil(window), window * window);
    let (channels, size) = (all / 3, all / 3 / heads);
    let qkv = qkv.contiguous()?;
    let (qkv, padding) = (numbers(&qkv)?, numbers(padding)?);
    let (qkv, padding) = (&*qkv, &*padding);
    // Each window and head writes a block of its own, (tokens, size); the blocks are put side by side afterwards.
    let mut blocks = vec![0.0; batch * rows * columns * heads * tokens * size];
    blocks.par_chunks_mut((tokens * size).max(1)).enumerate().for_each(|(index, block)| {
        let (place, head) = (index / heads, index % heads);
        let (image, top, left) = (place / (rows * columns), place / columns % rows * window, place % columns * window);
        let token = |token: usize, part: usize| -> &[f32] {
            let (y, x) = (top + token / window, left + token % window);
            let all =
                if y < height && x < width { &qkv[((image * height + y) * width + x) * all..][..all] } else { padding };
            &all[part * channels + head * size..][..size]
        };
        attend((block, size), token, Some, (tokens, tokens), size);
    });
    let mut out = vec![0.0; batch * height * width * channels];
    out.par_chunks_mut((width * channels).max(1)).enumerate().with_min_len(4).for_each(|(line, out)| {
        let (image, y) = (line / height, line % height);
        for (x, out) in out.chunks_exact_mut(channels).enumerate() {
            let place = (image * rows + y / window) * columns + x / window;
            let token = y % window * window + x % window;
            for (head, out) in out.chunks_exact_mut(size).enumerate() {
                let block = &blocks[(place * heads + head) * tokens * size..];
                out.copy_from_slice(&block[token * size..][..size]);
            }
        }
    });
    Tensor::from_vec(out, (batch, height, width, channels), &Device::Cpu)
}

/// The attention of one head: so many asking tokens to so many others. `token` gives a token's part 0, 1 or 2 of q, k and v,
/// each of `size` numbers; `row` says in which row of `out`, `out_stride` apart, the result of an asking one goes, if anybody
/// wants it.
pub(super) fn attend<'a, N: Number>(
    (out, out_stride): (&mut [N], usize),
    token: impl Fn(usize, usize) -> &'a [N],
    row: impl Fn(usize) -> Option<usize>,
    (asking, tokens): (usize, usize),
    size: usize,
) {
    let (key_numbers, value_numbers) = (packed_length::<N>(tokens, size), packed_length::<N>(size, tokens));
    let (narrow, wide) = (N::padded(size), N::padded(tokens));
    // Queries that go through scores, softmax and values together, while the scores are in the first cache.
    let queries = 24 * N::GROUP;
    let stride = tokens.next_multiple_of(PANEL);
    let scale = (size as f32).powf(-0.5);
    let numbers = key_numbers + value_numbers + queries * (narrow + wide);
    N::with_scratch(numbers, |place| {
        let (keys, place) = place.split_at_mut(key_numbers);
        let (values, place) = place.split_at_mut(value_numbers);
        let (rows, weights) = place.split_at_mut(queries * narrow);
        for (panel, keys) in keys.chunks_exact_mut(panel_length::<N>(size)).enumerate() {
            let first = panel * PANEL;
            pack(keys, PANEL.min(tokens - first), |key| token(first + key, 1), |number| number);
        }
        values.fill(N::default());
        for (panel, values) in values.chunks_exact_mut(panel_length::<N>(tokens)).enumerate() {
            let channels = panel * PANEL..size.min((panel + 1) * PANEL);
            for value in 0..tokens {
                let line = &mut values[value / N::GROUP * PANEL * N::GROUP..][..PANEL * N::GROUP];
                let places = line[value % N::GROUP..].iter_mut().step_by(N::GROUP);
                places.zip(&token(value, 2)[channels.clone()]).for_each(|(place, value)| *place = *value);
            }
        }
        let keys = Panels { numbers: &*keys, inner: size, out: tokens };
        let values = Panels { numbers: &*values, inner: tokens, out: size };
        f32::with_scratch(queries * (stride + size + 1), |place| {
            let (scores, place) = place.split_at_mut(queries * stride);
            let (attended, sums) = place.split_at_mut(queries * size);
            for first in (0..asking).step_by(queries) {
                let count = queries.min(asking - first);
                for (query, row) in rows.chunks_exact_mut(narrow).take(count).enumerate() {
                    let (filled, rest) = row.split_at_mut(size);
                    filled.copy_from_slice(token(first + query, 0));
                    rest.fill(N::default());
                }
                let rows = Rows { values: &*rows, stride: narrow, count };
                multiply(rows, keys, &[], Target::Sums { out: &mut *scores, stride, start: Start::Fresh });
                exponentials((&mut scores[..count * stride], stride, tokens), scale, (&mut *weights, wide), &mut *sums);
                let rows = Rows { values: &*weights, stride: wide, count };
                multiply(rows, values, &[], Target::Sums { out: &mut *attended, stride: size, start: Start::Fresh });
                let attended = attended.chunks_exact(size).take(count);
                for (query, (attended, sum)) in attended.zip(&*sums).enumerate() {
                    let Some(row) = row(first + query) else { continue };
                    let out = &mut out[row * out_stride..][..size];
                    out.iter_mut().zip(attended).for_each(|(out, value)| *out = N::from_f32(value / sum));
                }
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_over_odd_sizes() {
        for (batch, height, width, window, heads, size) in [
            (1, 1, 1, 1, 1, 1),
            (2, 3, 6, 3, 2, 4),
            (1, 24, 12, 12, 1, 32),
            (1, 15, 10, 5, 3, 7),
            (2, 16, 13, 14, 2, 33),
            (1, 5, 4, 2, 1, 2),
        ] {
            let qkv = random(&[batch, height, width, 3 * heads * size], 1);
            let padding = random(&[3 * heads * size], 2);
            let fast = window_attention(&qkv, &padding, window, heads).unwrap();
            assert_close(&fast, &reference(&qkv, &padding, window, heads).unwrap(), 1e-5);
        }
    }

    #[test]
    fn refuses_shapes_that_do_not_fit() {
        let qkv = random(&[1, 4, 4, 6], 1);
        assert!(window_attention(&qkv, &random(&[5], 1), 2, 1).is_err());
        assert!(window_attention(&qkv, &random(&[6], 1), 0, 1).is_err());
        assert!(window_attention(&qkv, &random(&[6], 1), 2, 4).is_err());
    }
}
