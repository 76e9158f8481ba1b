//! Layer normalisation over the last dimension, in f32 whatever the tensor's type.

use candle_core::{CpuStorage, CustomOp3, DType, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

/// (x - mean) / sqrt(variance + epsilon) * weight + bias for every row of `channels` numbers; x is (..., channels), weight
/// and bias are (channels) in f32. The result has the type of x.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f32) -> Result<Tensor> {
    if super::is_fast(x) {
        return x.contiguous()?.apply_op3_no_bwd(weight, bias, &LayerNorm { epsilon });
    }
    reference(&x.to_dtype(DType::F32)?, weight, bias, f64::from(epsilon))?.to_dtype(x.dtype())
}

fn reference(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f64) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(candle_core::D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(candle_core::D::Minus1)?;
    centred.broadcast_div(&(variance + epsilon)?.sqrt()?)?.broadcast_mul(weight)?.broadcast_add(bias)
}

struct LayerNorm {
    epsilon: f32,
}

impl CustomOp3 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (weight, bias) = (super::floats(weight, weight_layout)?, super::floats(bias, bias_layout)?);
        let channels = layout.dims().last().copied().unwrap_or(0);
        if channels == 0 || weight.len() != channels || bias.len() != channels {
            candle_core::bail!("layer norm of {:?} with {} weights", layout.dims(), weight.len());
        }
        let x = super::floats(x, layout)?;
        let mut out = vec![0.0; x.len()];
        out.par_chunks_mut(channels * ROWS)
            .zip(x.par_chunks(channels * ROWS))
            .for_each(|(out, x)| normalise_rows(out, x, weight, bias, self.epsilon));
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

/// Rows handed to one thread at a time.
const ROWS: usize = 32;

#[multiversion::multiversion(targets("x86_64+avx2+fma", "x86_64+avx+f16c"))]
fn normalise_rows(out: &mut [f32], x: &[f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    let channels = weight.len();
    let count = channels as f32;
    for (out, x) in out.chunks_exact_mut(channels).zip(x.chunks_exact(channels)) {
        let mean = sum(x, |value| value) / count;
        let variance = sum(x, |value| (value - mean) * (value - mean)) / count;
        let scale = 1.0 / (variance + epsilon).sqrt();
        for (((out, value), weight), bias) in out.iter_mut().zip(x).zip(weight).zip(bias) {
            *out = (value - mean) * scale * weight + bias;
        }
    }
}

/// A sum in eight lanes, which the compiler may keep in one register.
#[inline(always)]
fn sum(x: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; 8];
    let chunks = x.chunks_exact(8);
    let rest: f32 = chunks.remainder().iter().map(|&value| of(value)).sum();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += of(value);
        }
    }
    lanes.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_over_odd_sizes() {
        for (rows, channels) in [(1, 1), (1, 3), (2, 7), (31, 8), (33, 9), (64, 64), (65, 65)] {
            let (x, w, b) = (random(&[rows, channels], 1), random(&[channels], 2), random(&[channels], 3));
            let x = ((x * 3.0).unwrap() + 5.0).unwrap();
            let fast = layer_norm(&x, &w, &b, 1e-5).unwrap();
            assert_close(&fast, &reference(&x, &w, &b, 1e-5).unwrap(), 2e-5);
        }
    }

    #[test]
    fn keeps_the_type_of_its_input_and_refuses_wrong_shapes() {
        let (x, w, b) = (random(&[4, 8], 1), random(&[8], 2), random(&[8], 3));
        let half = layer_norm(&x.to_dtype(DType::BF16).unwrap(), &w, &b, 1e-5).unwrap();
        assert_eq!(half.dtype(), DType::BF16);
        assert_close(&half.to_dtype(DType::F32).unwrap(), &layer_norm(&x, &w, &b, 1e-5).unwrap(), 0.03);
        assert!(layer_norm(&random(&[4, 7], 1), &w, &b, 1e-5).is_err());
    }
}
