//! The depthwise 3x3 convolution with bias, added to its input: x + conv(x).

use candle_core::{DType, Result, Tensor};
use multiversion::{multiversion, target::target_cfg_f};
use rayon::prelude::*;

use super::arithmetic::fma;
use super::number::Number;
use super::numbers;

/// x + depthwise(x) + bias, zero padding of 1; x is (batch, height, width, channels), weight is (9, channels), the taps row
/// by row, bias is (channels); weight and bias are in f32. The result has the type of x. On a CPU x is changed where it is, and
/// whatever shares its memory with it.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn depthwise_residual(x: Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return super::cuda::depthwise_residual(&x, weight, bias);
    }
    if !super::is_fast(&x) {
        return reference(&x.to_dtype(DType::F32)?, weight, bias)?.to_dtype(x.dtype());
    }
    let (_, height, width, channels) = x.dims4()?;
    let (weight, bias) = (numbers(weight)?, numbers(bias)?);
    let (weight, bias) = (&*weight, &*bias);
    if weight.len() != 9 * channels || bias.len() != channels {
        candle_core::bail!("a depthwise convolution of {} weights was given {:?}", weight.len(), x.dims());
    }
    let (row, image) = (width * channels, height * width * channels);
    super::change(x, |x| {
        for image in x.chunks_exact_mut(image.max(1)) {
            convolve_image(image, row, weight, bias);
        }
        Ok(())
    })
}

/// One image of rows of `row` numbers, in place, bands of rows shared out among the threads.
fn convolve_image(image: &mut [f32], row: usize, weight: &[f32], bias: &[f32]) {
    let height = image.len() / row;
    let band = height.div_ceil(rayon::current_num_threads()).clamp(1, ROWS);
    // The rows next to each band as they are now: another thread may have changed them when they are needed.
    let edges: Vec<f32> =
        (band..height).step_by(band).flat_map(|first| &image[(first - 1) * row..(first + 1) * row]).copied().collect();
    image.par_chunks_mut(band * row).enumerate().for_each(|(index, rows)| {
        let above = index.checked_sub(1).map(|edge| &edges[2 * edge * row..][..row]);
        let below = edges.get((2 * index + 1) * row..).and_then(|edges| edges.get(..row));
        convolve_band(rows, row, [above, below], weight, bias);
    });
}

/// A band of rows in place; `above` and `below` are the rows around it, absent where it ends at the image's edge.
fn convolve_band(rows: &mut [f32], row: usize, [above, below]: [Option<&[f32]>; 2], weight: &[f32], bias: &[f32]) {
    f32::with_scratch(2 * row, |kept| {
        // The two rows before their change that the next ones still look at.
        let (mut previous, mut present) = kept.split_at_mut(row);
        let mut has_previous = above.is_some();
        if let Some(above) = above {
            previous.copy_from_slice(above);
        }
        for start in (0..rows.len()).step_by(row) {
            let (out, rest) = rows[start..].split_at_mut(row);
            present.copy_from_slice(out);
            let below = rest.get(..row).or(below);
            convolve_row(out, [has_previous.then_some(&*previous), Some(&*present), below], weight, bias);
            std::mem::swap(&mut previous, &mut present);
            has_previous = true;
        }
    });
}

/// Nine shifted copies of the padded input, each weighed by channel.
fn reference(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (_, height, width, _) = x.dims4()?;
    let padded = x.pad_with_zeros(1, 1, 1)?.pad_with_zeros(2, 1, 1)?;
    let mut sum = x.broadcast_add(bias)?;
    for tap in 0..9 {
        let shifted = padded.narrow(1, tap / 3, height)?.narrow(2, tap % 3, width)?;
        sum = (sum + shifted.broadcast_mul(&weight.get(tap)?)?)?;
    }
    Ok(sum)
}

/// Rows of pixels that a thread takes together at most.
const ROWS: usize = 24;
/// Channels whose nine weights are kept in registers along a row: one AVX-512 register for each tap.
const BLOCK: usize = 16;

/// One row of pixels from the three rows around it; an absent row is padding.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma",
    "x86_64+avx+f16c"
))]
fn convolve_row(out: &mut [f32], lines: [Option<&[f32]>; 3], weight: &[f32], bias: &[f32]) {
    if target_cfg_f!(target_feature = "fma") || cfg!(target_arch = "aarch64") {
        convolve_blocks::<true>(out, lines, weight, bias);
    } else {
        convolve_blocks::<false>(out, lines, weight, bias);
    }
}

#[inline(always)]
fn convolve_blocks<const FUSED: bool>(out: &mut [f32], lines: [Option<&[f32]>; 3], weight: &[f32], bias: &[f32]) {
    let channels = bias.len();
    let blocks = channels / BLOCK;
    for first in (0..blocks).map(|block| block * BLOCK) {
        convolve_channels::<BLOCK, FUSED>(out, lines, weight, bias, first);
    }
    for first in blocks * BLOCK..channels {
        convolve_channels::<1, FUSED>(out, lines, weight, bias, first);
    }
}

/// `COUNT` channels of a row, from `first` on.
#[inline(always)]
fn convolve_channels<const COUNT: usize, const FUSED: bool>(
    out: &mut [f32],
    lines: [Option<&[f32]>; 3],
    weight: &[f32],
    bias: &[f32],
    first: usize,
) {
    let channels = bias.len();
    let width = out.len() / channels;
    let block = |numbers: &[f32], row: usize| -> [f32; COUNT] {
        let mut block = [0.0; COUNT];
        block.copy_from_slice(&numbers[row * channels + first..][..COUNT]);
        block
    };
    let bias = block(bias, 0);
    let mut taps: [[f32; COUNT]; 9] = std::array::from_fn(|tap| block(weight, tap));
    // The pixel itself is added once more.
    taps[4].iter_mut().for_each(|weight| *weight += 1.0);
    for column in 0..width {
        let mut sum = bias;
        for (line, taps) in lines.iter().zip(taps.as_chunks::<3>().0) {
            let Some(line) = line else { continue };
            for (dx, tap) in taps.iter().enumerate() {
                let Some(from) = (column + dx).checked_sub(1).filter(|&from| from < width) else { continue };
                for ((sum, x), weight) in sum.iter_mut().zip(block(line, from)).zip(tap) {
                    *sum = fma::<FUSED>(x, *weight, *sum);
                }
            }
        }
        out[column * channels + first..][..COUNT].copy_from_slice(&sum);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_over_odd_sizes() {
        for (batch, height, width, channels) in [
            (1, 1, 1, 1),
            (1, 1, 5, 3),
            (2, 5, 1, 8),
            (1, 2, 2, 33),
            (2, 7, 9, 31),
            (1, 16, 16, 64),
            (3, 3, 4, 65),
            (2, 53, 3, 17),
        ] {
            let (x, w, b) =
                (random(&[batch, height, width, channels], 1), random(&[9, channels], 2), random(&[channels], 3));
            let fast = depthwise_residual(x.copy().unwrap(), &w, &b).unwrap();
            assert_close(&fast, &reference(&x, &w, &b).unwrap(), 1e-5);
        }
    }

    #[test]
    fn equals_a_grouped_convolution() {
        let (x, kernel, b) = (random(&[1, 6, 5, 4], 1), random(&[4, 1, 3, 3], 2), random(&[4], 3));
        let theirs = x.permute((0, 3, 1, 2)).unwrap().contiguous().unwrap().conv2d(&kernel, 1, 1, 1, 4).unwrap();
        let theirs = (theirs.permute((0, 2, 3, 1)).unwrap().broadcast_add(&b).unwrap() + &x).unwrap();
        let weight = kernel.reshape((4, 9)).unwrap().t().unwrap().contiguous().unwrap();
        assert_close(&depthwise_residual(x, &weight, &b).unwrap(), &theirs, 1e-5);
    }

    #[test]
    fn refuses_shapes_that_do_not_fit() {
        let x = random(&[1, 2, 2, 3], 1);
        assert!(depthwise_residual(x, &random(&[9, 4], 1), &random(&[4], 1)).is_err());
        assert!(depthwise_residual(random(&[2, 2, 3], 1), &random(&[9, 3], 1), &random(&[3], 1)).is_err());
    }
}
