//! The number formats that products are computed in: f32, and bfloat16 with sums in f32.

use super::arithmetic::fma;
use super::gelu::gelu_of;
use super::memory::Zero;
use super::packed::{self, Panels, Rows, Target};
use super::scratch;

/// A number that a matrix product reads. Sums are kept in f32 always.
pub(super) trait Number: Zero + Send + Sync + 'static {
    /// Inputs that lie side by side for each output of a panel: as many as one instruction adds up.
    const GROUP: usize;
    /// Rows and panels are filled up with zeros to a multiple of so many inputs.
    const STEP: usize;

    /// Rows that go through a product together at most: a core's caches hold them beside a panel.
    const ROWS: usize;
    /// Rows of the product's tiles.
    const TILE_ROWS: usize;

    /// Rounded to the nearest, ties to even.
    fn from_f32(value: f32) -> Self;

    /// Exactly.
    fn to_f32(self) -> f32;

    /// See [`packed::multiply`].
    fn multiply(a: Rows<'_, Self>, b: Panels<'_, Self>, bias: &[f32], target: Target<'_, Self>);

    /// Shows `work` the rows of `x`, `inner` numbers each, as operands of a product.
    fn with_operand<R>(x: &[f32], inner: usize, work: impl FnOnce(Rows<'_, Self>) -> R) -> R {
        let (count, stride) = (x.len() / inner, Self::stride(inner));
        Self::with_scratch(count * stride, |operand| {
            round_rows(operand, x, inner);
            work(Rows { values: operand, stride, count })
        })
    }

    /// See [`scratch::with`].
    fn with_scratch<R>(length: usize, work: impl FnOnce(&mut [Self]) -> R) -> R;

    /// The exact GELU, as closely as this format can tell.
    fn gelu<const FUSED: bool>(x: f32) -> f32;

    /// Inputs after filling up.
    fn padded(inner: usize) -> usize {
        inner.next_multiple_of(Self::STEP)
    }

    /// How far apart the rows of an operand best lie: rows a multiple of 256 bytes apart would share few lines of the cache.
    fn stride(inner: usize) -> usize {
        let padded = Self::padded(inner);
        if Self::STEP > 1 && padded.is_multiple_of(128) { padded + Self::STEP } else { padded }
    }
}

impl Number for f32 {
    const GROUP: usize = 1;
    const STEP: usize = 1;
    const ROWS: usize = 72;
    const TILE_ROWS: usize = 12;

    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn gelu<const FUSED: bool>(x: f32) -> f32 {
        gelu_of::<FUSED>(x)
    }

    fn multiply(a: Rows<'_, Self>, b: Panels<'_, Self>, bias: &[f32], target: Target<'_, Self>) {
        packed::tiles::multiply(a, b, bias, target);
    }

    fn with_operand<R>(x: &[f32], inner: usize, work: impl FnOnce(Rows<'_, Self>) -> R) -> R {
        work(Rows { values: x, stride: inner, count: x.len() / inner })
    }

    fn with_scratch<R>(length: usize, work: impl FnOnce(&mut [Self]) -> R) -> R {
        scratch::with(&scratch::NUMBERS, length, work)
    }
}

/// The upper half of an f32. `half::bf16` is the same in memory; this one's rounding has no branches, so that loops over it
/// become vector instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Bf16(pub u16);

/// The error function to 2.3e-5, as x times a polynomial in x squared, fitted for the least largest error up to
/// [`ERF_FAR`] and 1 from there. A GELU made of it is off by 5e-5 of the number at most, a fortieth of what rounding to
/// bfloat16 loses near 1; the division of the closer form would take as long as all the rest.
pub(super) const ERF_COEFFICIENTS: [f32; 9] = [
    4.074_021_5e-8,
    -1.944_751_4e-6,
    4.105_941_8e-5,
    -5.110_278e-4,
    4.235_385_5e-3,
    -2.510_275e-2,
    1.110_791_8e-1,
    -3.753_147_7e-1,
    1.128_268_4,
];
/// See [`ERF_COEFFICIENTS`].
pub(super) const ERF_FAR: f32 = 3.0;

#[expect(unsafe_code, reason = "a promise about bits")]
// SAFETY: it is 16 bits, and 0 is all zero bits.
unsafe impl Zero for Bf16 {}

impl Number for Bf16 {
    const GROUP: usize = 2;
    /// One tile of AMX.
    const STEP: usize = 32;
    const ROWS: usize = 96;
    const TILE_ROWS: usize = 32;

    /// A NaN may become another NaN or an infinity: a result that had one stays useless.
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let even = (bits >> 16) & 1;
        Self((bits.wrapping_add(0x7FFF + even) >> 16) as u16)
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn gelu<const FUSED: bool>(x: f32) -> f32 {
        let scaled = x * std::f32::consts::FRAC_1_SQRT_2;
        let scaled = if scaled > ERF_FAR { ERF_FAR } else { scaled };
        let scaled = if scaled < -ERF_FAR { -ERF_FAR } else { scaled };
        let square = scaled * scaled;
        let mut sum = ERF_COEFFICIENTS[0];
        for coefficient in &ERF_COEFFICIENTS[1..] {
            sum = fma::<FUSED>(sum, square, *coefficient);
        }
        let half = 0.5 * x;
        fma::<FUSED>(half, sum * scaled, half)
    }

    fn multiply(a: Rows<'_, Self>, b: Panels<'_, Self>, bias: &[f32], target: Target<'_, Self>) {
        packed::bf16::multiply(a, b, bias, target);
    }

    fn with_scratch<R>(length: usize, work: impl FnOnce(&mut [Self]) -> R) -> R {
        scratch::with(&scratch::BF16, length, work)
    }
}

/// Rounds the rows of a matrix, `inner` numbers each, to rows of `N::stride(inner)`, zeros at the end.
#[multiversion::multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma"
))]
pub(super) fn round_rows<N: Number>(out: &mut [N], x: &[f32], inner: usize) {
    for (out, x) in out.chunks_exact_mut(N::stride(inner)).zip(x.chunks_exact(inner)) {
        let (filled, rest) = out.split_at_mut(inner);
        filled.iter_mut().zip(x).for_each(|(out, x)| *out = N::from_f32(*x));
        rest.fill(N::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_as_the_half_crate_does() {
        for bits in (0..u32::MAX).step_by(65_521) {
            let value = f32::from_bits(bits);
            let theirs = half::bf16::from_f32(value);
            if !value.is_nan() {
                assert_eq!(Bf16::from_f32(value).0, theirs.to_bits(), "{value:e}");
                assert_eq!(Bf16::from_f32(value).to_f32(), theirs.to_f32());
            }
        }
    }

    #[test]
    fn gelu_is_close_everywhere() {
        for step in -6_000..=6_000i16 {
            let x = f32::from(step) * 1e-3;
            let off = (Bf16::gelu::<true>(x) - f32::gelu::<true>(x)).abs();
            assert!(off <= 5e-5 * x.abs().max(1.0), "gelu({x}) is off by {off}");
        }
        assert!((Bf16::gelu::<false>(50.0) - 50.0).abs() < 2e-3 && Bf16::gelu::<false>(0.0) == 0.0);
    }

    #[test]
    fn rows_are_filled_up_with_zeros() {
        let mut out = vec![Bf16(7); 64];
        round_rows(&mut out, &[1.0, 2.0, 3.0, 4.0], 2);
        assert_eq!(out.iter().filter(|number| number.0 != 0).count(), 4);
        assert_eq!((out[1].to_f32(), out[32].to_f32(), out[33].to_f32()), (2.0, 3.0, 4.0));
        let mut out = [0.0; 4];
        round_rows::<f32>(&mut out, &[1.0, 2.0, 3.0, 4.0], 2);
        assert_eq!(out, [1.0, 2.0, 3.0, 4.0]);
    }
}
