//! The exact GELU, x * (1 + erf(x / sqrt 2)) / 2.

use candle_core::{Device, Result, Tensor};
use multiversion::{multiversion, target::target_cfg_f};
use rayon::prelude::*;

use super::arithmetic::{erf, fma};

/// GELU of every element, by the error function (not the tanh approximation).
///
/// # Errors
/// A device failure.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return super::cuda::gelu(x);
    }
    if !super::is_fast(x) {
        return x.gelu_erf();
    }
    let mut out = super::numbers(&x.contiguous()?)?.to_vec();
    out.par_chunks_mut(CHUNK).for_each(gelu_chunk);
    Tensor::from_vec(out, x.shape(), &Device::Cpu)
}

/// Numbers handed to one thread at a time: 64 kB, within its first-level caches' reach.
const CHUNK: usize = 16 * 1024;

/// GELU of every element, on this thread.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma",
    "x86_64+avx+f16c"
))]
pub(super) fn gelu_chunk(values: &mut [f32]) {
    if target_cfg_f!(target_feature = "fma") || cfg!(target_arch = "aarch64") {
        gelu_all::<true>(values);
    } else {
        gelu_all::<false>(values);
    }
}

#[inline(always)]
fn gelu_all<const FUSED: bool>(values: &mut [f32]) {
    for value in values {
        *value = gelu_of::<FUSED>(*value);
    }
}

/// GELU of one number.
#[inline(always)]
pub(super) fn gelu_of<const FUSED: bool>(x: f32) -> f32 {
    let half = 0.5 * x;
    fma::<FUSED>(half, erf::<FUSED>(x * std::f32::consts::FRAC_1_SQRT_2), half)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_everywhere() {
        let x = (random(&[40_001], 1) * 9.0).unwrap();
        assert_close(&gelu(&x).unwrap(), &x.gelu_erf().unwrap(), 1.5e-6);
        let small = (random(&[40_001], 2) * 0.9).unwrap();
        assert_close(&gelu(&small).unwrap(), &small.gelu_erf().unwrap(), 2e-7);
    }
}
