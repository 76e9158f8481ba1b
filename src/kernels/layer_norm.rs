//! Layer normalisation over the last dimension, in f32 whatever the tensor's type.

use std::ops::Deref;

use candle_core::{DType, Device, Result, Tensor};
use multiversion::{multiversion, target::target_cfg_f};
use rayon::prelude::*;

use super::arithmetic::{fma, sum};
use super::number::Number;
use super::numbers;

/// The parameters of a layer normalisation.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    /// (channels), in f32.
    pub weight: &'a Tensor,
    /// (channels), in f32.
    pub bias: &'a Tensor,
    /// Added to the variance.
    pub epsilon: f32,
}

/// (x - mean) / sqrt(variance + epsilon) * weight + bias for every row of `channels` numbers; x is (..., channels). The
/// result has the type of x.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn layer_norm(x: &Tensor, norm: Norm<'_>) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return super::cuda::layer_norm(x, norm);
    }
    if !super::is_fast(x) {
        return reference(&x.to_dtype(DType::F32)?, norm)?.to_dtype(x.dtype());
    }
    let channels = x.dims().last().copied().unwrap_or(0);
    let norm = norm.slices(channels)?;
    let norm = norm.get();
    let source = x.contiguous()?;
    let source = numbers(&source)?;
    let mut out = vec![0.0; source.len()];
    out.par_chunks_mut(channels * ROWS)
        .zip(source.par_chunks(channels * ROWS))
        .for_each(|(out, source)| norm.rows(out, source));
    Tensor::from_vec(out, x.shape(), &Device::Cpu)
}

fn reference(x: &Tensor, norm: Norm<'_>) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(candle_core::D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(candle_core::D::Minus1)?;
    let scaled = centred.broadcast_div(&(variance + f64::from(norm.epsilon))?.sqrt()?)?;
    scaled.broadcast_mul(norm.weight)?.broadcast_add(norm.bias)
}

/// Rows handed to one thread at a time.
const ROWS: usize = 64;

/// The parameters as numbers on the CPU.
pub(super) struct NormSlices<Numbers> {
    weight: Numbers,
    bias: Numbers,
    epsilon: f32,
}

/// [`NormSlices`] to be shared among threads.
#[derive(Clone, Copy)]
pub(super) struct Normaliser<'a> {
    weight: &'a [f32],
    bias: &'a [f32],
    epsilon: f32,
}

impl Norm<'_> {
    /// For rows of `channels` numbers.
    pub(super) fn slices(&self, channels: usize) -> Result<NormSlices<impl Deref<Target = [f32]>>> {
        let (weight, bias) = (numbers(self.weight)?, numbers(self.bias)?);
        if channels == 0 || weight.len() != channels || bias.len() != channels {
            candle_core::bail!("layer norm of {channels} channels with {} weights", weight.len());
        }
        Ok(NormSlices { weight, bias, epsilon: self.epsilon })
    }
}

impl<Numbers: Deref<Target = [f32]>> NormSlices<Numbers> {
    pub(super) fn get(&self) -> Normaliser<'_> {
        Normaliser { weight: &self.weight, bias: &self.bias, epsilon: self.epsilon }
    }
}

impl Normaliser<'_> {
    /// Normalises rows, on this thread, as operands of a product: rows [`Number::stride`] apart.
    pub(super) fn rows<N: Number>(self, out: &mut [N], x: &[f32]) {
        normalise_rows(out, x, self.weight, self.bias, self.epsilon);
    }
}

#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma",
    "x86_64+avx+f16c"
))]
fn normalise_rows<N: Number>(out: &mut [N], x: &[f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    if target_cfg_f!(target_feature = "fma") || cfg!(target_arch = "aarch64") {
        normalise_all::<N, true>(out, x, weight, bias, epsilon);
    } else {
        normalise_all::<N, false>(out, x, weight, bias, epsilon);
    }
}

#[inline(always)]
fn normalise_all<N: Number, const FUSED: bool>(out: &mut [N], x: &[f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    let channels = weight.len();
    let count = channels as f32;
    for (out, x) in out.chunks_exact_mut(N::stride(channels)).zip(x.chunks_exact(channels)) {
        let (out, rest) = out.split_at_mut(channels);
        rest.fill(N::default());
        let mean = sum(x, |value| value) / count;
        let variance = sum(x, |value| (value - mean) * (value - mean)) / count;
        let scale = 1.0 / (variance + epsilon).sqrt();
        for (((out, value), weight), bias) in out.iter_mut().zip(x).zip(weight).zip(bias) {
            *out = N::from_f32(fma::<FUSED>((value - mean) * scale, *weight, *bias));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_over_odd_sizes() {
        for (rows, channels) in [(1, 1), (1, 3), (2, 7), (31, 8), (33, 9), (64, 64), (65, 65)] {
            let (x, w, b) = (random(&[rows, channels], 1), random(&[channels], 2), random(&[channels], 3));
            let norm = Norm { weight: &w, bias: &b, epsilon: 1e-5 };
            let x = ((x * 3.0).unwrap() + 5.0).unwrap();
            let fast = layer_norm(&x, norm).unwrap();
            assert_close(&fast, &reference(&x, norm).unwrap(), 2e-5);
        }
    }

    #[test]
    fn keeps_the_type_of_its_input_and_refuses_wrong_shapes() {
        let (x, w, b) = (random(&[4, 8], 1), random(&[8], 2), random(&[8], 3));
        let norm = Norm { weight: &w, bias: &b, epsilon: 1e-5 };
        let half = layer_norm(&x.to_dtype(DType::BF16).unwrap(), norm).unwrap();
        assert_eq!(half.dtype(), DType::BF16);
        assert_close(&half.to_dtype(DType::F32).unwrap(), &layer_norm(&x, norm).unwrap(), 0.03);
        assert!(layer_norm(&random(&[4, 7], 1), norm).is_err());
    }
}
