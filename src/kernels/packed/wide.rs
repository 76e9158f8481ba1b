//! What happens to sums of bfloat16 products, 32 of a row at a time in two AVX-512 registers: bias, GELU, rounding, masked
//! stores at the edge of a matrix.

use std::arch::x86_64::{
    __m256bh, __m256i, __m512, _mm256_mask_storeu_epi16, _mm256_storeu_epi16, _mm512_add_ps, _mm512_cvtneps_pbh,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_max_ps, _mm512_min_ps,
    _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps,
};

use super::super::number::{Bf16, ERF_COEFFICIENTS, ERF_FAR};
use super::{PANEL, Start, Target};

/// Whether this processor has the instructions.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bf16")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
}

/// Some columns of a target: `width` from `column` on, 32 at most.
pub(super) struct Columns {
    column: usize,
    bias: [__m512; 2],
    /// A bit for each column that there is.
    mask: [u16; 2],
}

impl Columns {
    /// Columns of a target of `out` columns in all; an empty `bias` is none.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    pub fn new(bias: &[f32], column: usize, out: usize) -> Self {
        let width = PANEL.min(out - column);
        let bits = u32::MAX >> (PANEL - width);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
        let mask = [bits as u16, (bits >> 16) as u16];
        let bias = match bias.get(column..column + width) {
            Some(bias) => [0, 1].map(|half| {
                let bias = bias.get(16 * half..).unwrap_or_default();
                #[expect(unsafe_code, reason = "loads take pointers")]
                // SAFETY: the mask has no bit beyond the slice, and what it leaves out is not loaded.
                unsafe {
                    _mm512_maskz_loadu_ps(mask[half], bias.as_ptr())
                }
            }),
            None => [_mm512_setzero_ps(); 2],
        };
        Self { column, bias, mask }
    }

    /// Brings the sums of rows, the first of which is row `first` of the target, to where they go.
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    #[inline]
    pub fn finish(&self, sums: &[[f32; PANEL]], first: usize, target: &mut Target<'_, Bf16>) {
        let width = (self.mask[0].count_ones() + self.mask[1].count_ones()) as usize;
        match target {
            Target::Sums { out, stride, start } => {
                for (row, sums) in sums.iter().enumerate() {
                    let out = &mut out[(first + row) * *stride + self.column..][..width];
                    self.add(out, sums, *start);
                }
            }
            Target::Numbers { out, stride, gelu } => {
                for (row, sums) in sums.iter().enumerate() {
                    let out = &mut out[(first + row) * *stride + self.column..][..width];
                    self.round(out, sums, *gelu);
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    #[inline]
    fn add(&self, out: &mut [f32], sums: &[f32; PANEL], start: Start) {
        for half in 0..2 {
            let Some(out) = out.get_mut(16 * half..) else { return };
            #[expect(unsafe_code, reason = "loads and stores take pointers")]
            // SAFETY: the sums are two registers long; the mask has no bit beyond the slice, and what it leaves out is neither
            // loaded nor stored.
            unsafe {
                let mut value = _mm512_add_ps(_mm512_loadu_ps(sums.as_ptr().add(16 * half)), self.bias[half]);
                if start == Start::Present {
                    value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(self.mask[half], out.as_ptr()));
                }
                _mm512_mask_storeu_ps(out.as_mut_ptr(), self.mask[half], value);
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma")]
    #[inline]
    fn round(&self, out: &mut [Bf16], sums: &[f32; PANEL], gelu: bool) {
        for half in 0..2 {
            let Some(out) = out.get_mut(16 * half..) else { return };
            #[expect(
                unsafe_code,
                reason = "loads and stores take pointers, and the type of pairs is only bits to a store"
            )]
            // SAFETY: the sums are two registers long; the mask has no bit beyond the slice, and what it leaves out is not
            // stored. Bf16 is 16 bits in memory, and all bits are a value of either vector type.
            unsafe {
                let mut value = _mm512_add_ps(_mm512_loadu_ps(sums.as_ptr().add(16 * half)), self.bias[half]);
                if gelu {
                    value = gelu_of(value);
                }
                let rounded = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(value));
                if self.mask[half] == u16::MAX {
                    _mm256_storeu_epi16(out.as_mut_ptr().cast(), rounded);
                } else {
                    _mm256_mask_storeu_epi16(out.as_mut_ptr().cast(), self.mask[half], rounded);
                }
            }
        }
    }
}

/// As [`Bf16`]'s own.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma")]
#[inline]
fn gelu_of(x: __m512) -> __m512 {
    let scaled = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::FRAC_1_SQRT_2));
    let scaled = _mm512_max_ps(_mm512_min_ps(scaled, _mm512_set1_ps(ERF_FAR)), _mm512_set1_ps(-ERF_FAR));
    let square = _mm512_mul_ps(scaled, scaled);
    let mut sum = _mm512_set1_ps(ERF_COEFFICIENTS[0]);
    for coefficient in &ERF_COEFFICIENTS[1..] {
        sum = _mm512_fmadd_ps(sum, square, _mm512_set1_ps(*coefficient));
    }
    let half = _mm512_mul_ps(_mm512_set1_ps(0.5), x);
    _mm512_fmadd_ps(half, _mm512_mul_ps(sum, scaled), half)
}
