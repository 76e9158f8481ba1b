//! Arithmetic that the inner loops are made of. Each function is inlined into loops that are compiled for several instruction
//! sets; none branches, so that the compiler can work on as many numbers at once as the machine has lanes.

use multiversion::{multiversion, target::target_cfg_f};

use super::number::Number;

/// Lanes that sums and maxima are kept in: one AVX-512 register.
const LANES: usize = 16;

/// a * b + c, in one rounding where the instruction set has that (`FUSED`): elsewhere it would be a call for each number.
#[inline(always)]
pub(super) fn fma<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// The error function to about 3e-7: an odd rational function of degree 13 over 8, beyond 4 the value at 4.
///
/// The coefficients are those of Eigen's `generic_fast_erf_float`.
#[inline(always)]
pub(super) fn erf<const FUSED: bool>(x: f32) -> f32 {
    const FAR: f32 = 4.0;
    let x = if x > FAR { FAR } else { x };
    let x = if x < -FAR { -FAR } else { x };
    let square = x * x;
    let mut above = -2.72614225801306e-10;
    for c in [
        2.77068142495902e-08,
        -2.10102402082508e-06,
        -5.69250639462346e-05,
        -7.34990630326855e-04,
        -2.95459980854025e-03,
        -1.60960333262415e-02,
    ] {
        above = fma::<FUSED>(above, square, c);
    }
    let mut below = -1.45660718464996e-05;
    for c in [-2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02] {
        below = fma::<FUSED>(below, square, c);
    }
    x * above / below
}

/// e^x to about 1e-7 relative, for x from -64 to 88, and 0 below. What is left out is nothing beside the 1 that stands for the
/// largest of a row, and as a weight it would make products that are too small for normal numbers, each of which costs a
/// processor a hundred times as much as others.
#[inline(always)]
pub(super) fn exp<const FUSED: bool>(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts, the first exact in few bits, so that x - n ln 2 keeps its digits.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding 1.5 * 2^23 rounds to a whole number, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    const LEAST: f32 = -64.0;
    let zero = x < LEAST;
    let x = if zero { LEAST } else { x };
    let shifted = fma::<FUSED>(x, LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fma::<FUSED>(n, -LN2_LOW, fma::<FUSED>(n, -LN2_HIGH, x));
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = fma::<FUSED>(p, r, c);
    }
    let p = fma::<FUSED>(p * r, r, r) + 1.0;
    // 2^n: all bits of the rounding constant are shifted out.
    let value = p * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if zero { 0.0 } else { value }
}

/// A sum of `of` each number.
#[inline(always)]
pub(super) fn sum(x: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += of(value);
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|&value| of(value)).sum::<f32>()
}

/// The largest number; NaN is never it.
#[inline(always)]
pub(super) fn max(x: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, value);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, larger)
}

/// Replaces the first `count` numbers of each row of `stride` by their softmax.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma",
    "x86_64+avx+f16c"
))]
pub(super) fn softmax(scores: &mut [f32], stride: usize, count: usize) {
    if target_cfg_f!(target_feature = "fma") || cfg!(target_arch = "aarch64") {
        softmax_rows::<true>(scores, stride, count);
    } else {
        softmax_rows::<false>(scores, stride, count);
    }
}

#[inline(always)]
fn softmax_rows<const FUSED: bool>(scores: &mut [f32], stride: usize, count: usize) {
    for row in scores.chunks_exact_mut(stride) {
        let row = &mut row[..count];
        let most = max(row);
        for score in row.iter_mut() {
            *score = exp::<FUSED>(*score - most);
        }
        let scale = 1.0 / sum(row, |value| value);
        for score in row {
            *score *= scale;
        }
    }
}

/// For each row of `stride` scores, `out` (rows of `out_stride`) gets e^(scale * (score - the row's most)) of the first
/// `count`, zeros after them, and `sums` what they add up to; the scores are used up: a softmax whose division is left for later, when there is less
/// to divide. `scale` is not negative.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma",
    "x86_64+avx+f16c"
))]
pub(super) fn exponentials<N: Number>(
    (scores, stride, count): (&mut [f32], usize, usize),
    scale: f32,
    (out, out_stride): (&mut [N], usize),
    sums: &mut [f32],
) {
    if target_cfg_f!(target_feature = "fma") || cfg!(target_arch = "aarch64") {
        exponentials_of_rows::<N, true>((scores, stride, count), scale, (out, out_stride), sums);
    } else {
        exponentials_of_rows::<N, false>((scores, stride, count), scale, (out, out_stride), sums);
    }
}

#[inline(always)]
fn exponentials_of_rows<N: Number, const FUSED: bool>(
    (scores, stride, count): (&mut [f32], usize, usize),
    scale: f32,
    (out, out_stride): (&mut [N], usize),
    sums: &mut [f32],
) {
    let rows = scores.chunks_exact_mut(stride).zip(out.chunks_exact_mut(out_stride)).zip(sums);
    for ((scores, out), total) in rows {
        let (scores, (filled, rest)) = (&mut scores[..count], out.split_at_mut(count));
        let shift = -scale * max(scores);
        for score in scores.iter_mut() {
            *score = exp::<FUSED>(fma::<FUSED>(*score, scale, shift));
        }
        *total = sum(scores, |value| value);
        // A loop of its own: together with the rest it would not become vector instructions.
        filled.iter_mut().zip(scores).for_each(|(out, score)| *out = N::from_f32(*score));
        rest.fill(N::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_at_known_places() {
        for (x, expected) in [(0.0, 1.0), (1.0, std::f32::consts::E), (-1.0, 0.367_879_44), (-20.0, 2.061_153_6e-9)] {
            for got in [exp::<true>(x), exp::<false>(x)] {
                assert!((got - expected).abs() <= 2e-7 * expected, "exp({x}) = {got}");
            }
        }
        assert_eq!([exp::<true>(-200.0), exp::<false>(f32::NEG_INFINITY), exp::<true>(-64.1)], [0.0; 3]);
        assert!(exp::<true>(-64.0) > 1e-28 && exp::<true>(f32::NAN).is_nan());
    }

    /// By the Taylor series in f64, which converges everywhere and is exact enough up to 4.
    fn erf_f64(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            let n = f64::from(n);
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn erf_is_right_to_a_few_units_in_the_last_place() {
        for step in -40_000..=40_000 {
            #[expect(clippy::cast_precision_loss, reason = "a small whole number")]
            let x = step as f32 * 1e-4;
            let exact = erf_f64(f64::from(x));
            for got in [erf::<true>(x), erf::<false>(x)] {
                let off = (f64::from(got) - exact).abs();
                assert!(off <= 8.0 * f64::from(f32::EPSILON) / 2.0 * exact.abs(), "erf({x}) = {got}, off by {off:e}");
            }
        }
        assert_eq!((erf::<true>(50.0), erf::<true>(f32::NEG_INFINITY)), (erf::<true>(4.0), -erf::<true>(4.0)));
        assert!((erf::<true>(4.0) - 1.0).abs() < 3e-7 && erf::<true>(f32::NAN).is_nan());
    }

    #[test]
    fn softmax_leaves_the_padding_of_a_row_alone() {
        let mut scores: Vec<f32> = (0..40).map(|i: u8| f32::from(i % 7)).collect();
        softmax(&mut scores, 20, 19);
        for row in scores.chunks(20) {
            assert!((row[..19].iter().sum::<f32>() - 1.0).abs() < 1e-6);
        }
        assert_eq!((scores[19], scores[39]), (5.0, 4.0));
    }

    #[test]
    fn exponentials_divided_by_their_sum_are_the_softmax() {
        let mut scores: Vec<f32> = (0..120).map(|i: u8| f32::from(i % 11) - 3.0).collect();
        let (mut out, mut sums) = ([9.0f32; 150], [0.0; 3]);
        let mut expected: Vec<f32> = scores.iter().map(|score| score * 0.5).collect();
        exponentials((&mut scores, 40, 37), 0.5, (&mut out, 50), &mut sums);
        softmax(&mut expected, 40, 37);
        for ((out, expected), sum) in out.chunks(50).zip(expected.chunks(40)).zip(sums) {
            assert!(out[..37].iter().zip(expected).all(|(out, expected)| (out / sum - expected).abs() < 1e-6));
            assert_eq!(out[37..], [0.0; 13]);
        }
    }
}
