//! Reading a row of logits where it lies: their log-sum-exp, and those above a threshold.

use multiversion::{multiversion, target::target_cfg_f};

use super::arithmetic::{exp, max, sum};

/// log(sum(exp(logits))), with the largest taken out first so that nothing overflows. Each term is right to about 1e-7 of
/// the sum, which is more than the logits are.
#[must_use]
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let most = largest(logits);
    if !most.is_finite() {
        return f64::from(most);
    }
    f64::from(most) + sum_exp(logits, most).ln()
}

/// The first place from `from` on that holds more than `threshold`.
#[must_use]
pub fn first_above(logits: &[f32], from: usize, threshold: f32) -> Option<usize> {
    let rest = logits.get(from..)?;
    let block = block_above(rest, threshold)?;
    // Only now one by one: a threshold that rises with what is found stops at few blocks.
    let place = rest[block..].iter().position(|&logit| logit > threshold)?;
    Some(from + block + place)
}

/// Logits that are looked at together.
const BLOCK: usize = 256;

#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma",
    "x86_64+avx+f16c"
))]
fn largest(logits: &[f32]) -> f32 {
    max(logits)
}

/// Where the first block begins that holds more than the threshold.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma",
    "x86_64+avx+f16c"
))]
fn block_above(logits: &[f32], threshold: f32) -> Option<usize> {
    logits.chunks(BLOCK).position(|block| max(block) > threshold).map(|block| block * BLOCK)
}

/// Blocks are summed in f32, and the sums in f64.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma",
    "x86_64+avx+f16c"
))]
fn sum_exp(logits: &[f32], most: f32) -> f64 {
    if target_cfg_f!(target_feature = "fma") || cfg!(target_arch = "aarch64") {
        sum_blocks::<true>(logits, most)
    } else {
        sum_blocks::<false>(logits, most)
    }
}

#[inline(always)]
fn sum_blocks<const FUSED: bool>(logits: &[f32], most: f32) -> f64 {
    let mut total = 0.0;
    for block in logits.chunks(BLOCK) {
        total += f64::from(sum(block, |logit| exp::<FUSED>(logit - most)));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::super::tests::random;
    use super::*;

    #[test]
    fn log_sum_exp_is_that_of_f64() {
        for (count, scale) in [(1, 1.0), (3, 80.0), (255, 5.0), (257, 0.1), (51_289, 12.0)] {
            let logits: Vec<f32> =
                super::super::numbers(&random(&[count], 3)).unwrap().iter().map(|x| x * scale).collect();
            let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let exact = most + logits.iter().map(|&x| (f64::from(x) - most).exp()).sum::<f64>().ln();
            let got = log_sum_exp(&logits);
            assert!((got - exact).abs() < 1e-6, "{count} logits: {got}, not {exact}");
        }
        assert!((log_sum_exp(&[1e30, f32::NEG_INFINITY]) - f64::from(1e30_f32)).abs() < 1.0);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY; 9]), f64::NEG_INFINITY);
        assert_eq!(log_sum_exp(&[]), f64::NEG_INFINITY);
        assert!(log_sum_exp(&[1.0, f32::NAN, 2.0]).is_nan());
    }

    #[test]
    fn the_first_above_is_found_from_anywhere() {
        let mut logits = vec![0.0; 700];
        logits[3] = f32::NAN;
        (logits[300], logits[301], logits[699]) = (2.0, 3.0, 2.0);
        let all = |threshold: f32| -> Vec<usize> {
            std::iter::successors(first_above(&logits, 0, threshold), |at| first_above(&logits, at + 1, threshold))
                .collect()
        };
        assert_eq!(all(1.0), [300, 301, 699]);
        assert_eq!(all(2.0), [301]);
        assert_eq!(all(-1.0).len(), 699, "all but the NaN");
        assert_eq!(first_above(&logits, 700, 0.0), None);
    }
}
