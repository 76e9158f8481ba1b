//! The depthwise 3x3 convolution with bias, added to its input: x + conv(x).

use candle_core::{CpuStorage, CustomOp3, DType, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

/// x + depthwise(x) + bias, zero padding of 1; x is (batch, height, width, channels), weight is (9, channels), the taps row
/// by row, bias is (channels); weight and bias are in f32. The result has the type of x.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn depthwise_residual(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    if super::is_fast(x) {
        return x.contiguous()?.apply_op3_no_bwd(weight, bias, &Depthwise);
    }
    reference(&x.to_dtype(DType::F32)?, weight, bias)?.to_dtype(x.dtype())
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

struct Depthwise;

impl CustomOp3 for Depthwise {
    fn name(&self) -> &'static str {
        "depthwise-residual"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (_, height, width, channels) = x_layout.shape().dims4()?;
        let (weight, bias) = (super::floats(weight, weight_layout)?, super::floats(bias, bias_layout)?);
        if weight.len() != 9 * channels || bias.len() != channels {
            candle_core::bail!("a depthwise convolution of {} weights was given {:?}", weight.len(), x_layout.dims());
        }
        let x = super::floats(x, x_layout)?;
        let mut out = vec![0.0; x.len()];
        let (row, image) = (width * channels, height * width * channels);
        if row > 0 {
            out.par_chunks_mut(row).enumerate().for_each(|(index, out)| {
                let (start, y) = (index / height * image, index % height);
                let line = |y: usize| &x[start + y * row..start + (y + 1) * row];
                let above = (y > 0).then(|| line(y - 1));
                let below = (y + 1 < height).then(|| line(y + 1));
                convolve_row(out, [above, Some(line(y)), below], weight, bias);
            });
        }
        Ok((CpuStorage::F32(out), x_layout.shape().clone()))
    }
}

/// One row of pixels from the three rows around it; an absent row is padding.
#[multiversion::multiversion(targets("x86_64+avx2+fma", "x86_64+avx+f16c"))]
fn convolve_row(out: &mut [f32], lines: [Option<&[f32]>; 3], weight: &[f32], bias: &[f32]) {
    let channels = bias.len();
    let width = out.len() / channels;
    for (column, out) in out.chunks_exact_mut(channels).enumerate() {
        out.copy_from_slice(bias);
        if let Some(line) = lines[1] {
            let here = &line[column * channels..(column + 1) * channels];
            out.iter_mut().zip(here).for_each(|(out, value)| *out += value);
        }
        for (dy, line) in lines.iter().enumerate() {
            let Some(line) = line else { continue };
            for dx in 0..3 {
                let Some(from) = (column + dx).checked_sub(1).filter(|&from| from < width) else { continue };
                let (x, w) = (&line[from * channels..][..channels], &weight[(dy * 3 + dx) * channels..][..channels]);
                for ((out, x), w) in out.iter_mut().zip(x).zip(w) {
                    *out += x * w;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_over_odd_sizes() {
        for (batch, height, width, channels) in
            [(1, 1, 1, 1), (1, 1, 5, 3), (2, 5, 1, 8), (1, 2, 2, 33), (2, 7, 9, 31), (1, 16, 16, 64), (3, 3, 4, 65)]
        {
            let (x, w, b) =
                (random(&[batch, height, width, channels], 1), random(&[9, channels], 2), random(&[channels], 3));
            let fast = depthwise_residual(&x, &w, &b).unwrap();
            assert_close(&fast, &reference(&x, &w, &b).unwrap(), 1e-5);
        }
    }

    #[test]
    fn equals_a_grouped_convolution() {
        let (x, kernel, b) = (random(&[1, 6, 5, 4], 1), random(&[4, 1, 3, 3], 2), random(&[4], 3));
        let theirs = x.permute((0, 3, 1, 2)).unwrap().contiguous().unwrap().conv2d(&kernel, 1, 1, 1, 4).unwrap();
        let theirs = (theirs.permute((0, 2, 3, 1)).unwrap().broadcast_add(&b).unwrap() + &x).unwrap();
        let weight = kernel.reshape((4, 9)).unwrap().t().unwrap().contiguous().unwrap();
        assert_close(&depthwise_residual(&x, &weight, &b).unwrap(), &theirs, 1e-5);
    }

    #[test]
    fn refuses_shapes_that_do_not_fit() {
        let x = random(&[1, 2, 2, 3], 1);
        assert!(depthwise_residual(&x, &random(&[9, 4], 1), &random(&[4], 1)).is_err());
        assert!(depthwise_residual(&random(&[2, 2, 3], 1), &random(&[9, 3], 1), &random(&[3], 1)).is_err());
    }
}
