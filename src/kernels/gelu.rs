//! The exact GELU, x * (1 + erf(x / sqrt 2)) / 2, in place over many numbers at once.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

/// GELU of every element, by the error function (not the tanh approximation).
///
/// # Errors
/// A device failure.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    if super::is_fast(x) { x.contiguous()?.apply_op1_no_bwd(&Gelu) } else { x.gelu_erf() }
}

struct Gelu;

impl CustomOp1 for Gelu {
    fn name(&self) -> &'static str {
        "gelu"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let mut out = super::floats(x, layout)?.to_vec();
        gelu_in_place(&mut out);
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

/// Numbers handed to one thread at a time: 64 kB, within its first-level caches' reach.
const CHUNK: usize = 16 * 1024;

/// GELU of every element, on all threads.
pub(super) fn gelu_in_place(values: &mut [f32]) {
    values.par_chunks_mut(CHUNK).for_each(gelu_chunk);
}

#[multiversion::multiversion(targets("x86_64+avx2+fma", "x86_64+avx+f16c"))]
fn gelu_chunk(values: &mut [f32]) {
    for value in values {
        *value = gelu_of(*value);
    }
}

#[inline(always)]
fn gelu_of(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// The error function to about 2e-7, without branches so that the compiler can do eight at once.
///
/// For |x| < 1 an odd polynomial, beyond that 1 - exp(-x^2) * t * p(t) with t = 1 / (1 + |x| / 2): the Chebyshev fit of
/// Numerical Recipes, section 6.2, whose relative error of the complement is below 1.2e-7 everywhere.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let a = x.abs();
    let t = 1.0 / (1.0 + 0.5 * a);
    let mut p = 0.170_872_77;
    for c in [
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
    ] {
        p = p * t + c;
    }
    let far = 1.0 - t * exp(-a * a - 1.265_512_23 + t * p);
    // Near zero the difference above loses digits; the Taylor series does not (its next term is 3e-9 at 0.5).
    let s = x * x;
    let mut near = 1.0 / 9360.0;
    for c in [-1.0 / 1320.0, 1.0 / 216.0, -1.0 / 42.0, 1.0 / 10.0, -1.0 / 3.0, 1.0] {
        near = near * s + c;
    }
    let near = std::f32::consts::FRAC_2_SQRT_PI * x * near;
    if a < 0.5 { near } else { far.copysign(x) }
}

/// e^x to about 1e-7 relative; 0 below -87, without branches.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts, the first exact in few bits, so that x - n ln 2 keeps its digits.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding and taking away 1.5 * 2^23 rounds to a whole number.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.336_54, 88.722_83);
    let n = (x * LOG2_E + ROUND) - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    let p = p * r * r + r + 1.0;
    #[expect(clippy::cast_possible_truncation, reason = "n is a whole number between -126 and 128")]
    let power = f32::from_bits((((n as i32) + 127) << 23).cast_unsigned());
    p * power
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

    #[test]
    fn exp_and_erf_at_known_places() {
        for (x, expected) in [(0.0, 1.0), (1.0, std::f32::consts::E), (-1.0, 0.367_879_44), (-20.0, 2.061_153_6e-9)] {
            assert!((exp(x) - expected).abs() <= 2e-7 * expected, "exp({x}) = {}", exp(x));
        }
        assert!(exp(-200.0) < 1e-37 && exp(f32::NEG_INFINITY) < 1e-37);
        for (x, expected) in
            [(0.0, 0.0), (0.25, 0.276_326_4), (0.5, 0.520_499_9), (1.0, 0.842_700_8), (3.0, 0.999_977_9)]
        {
            assert!((erf(x) - expected).abs() < 3e-7, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
    }
}
