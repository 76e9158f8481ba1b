//! Products of pairs of bfloat16 numbers with AVX-512 BF16.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_loadu_epi16, _mm512_set1_epi32, _mm512_storeu_ps,
};

use super::super::number::Bf16;
use super::{PANEL, Panels, Rows, Target, wide};

/// Rows of a tile: with two registers of sums each they fill three quarters of the registers.
const ROWS: usize = 12;
/// Rows of the tiles that what is left is cut into.
const FEW: usize = 4;

/// See [`super::multiply`].
///
/// # Panics
/// On a machine without the instruction.
pub(super) fn multiply(a: Rows<'_, Bf16>, b: Panels<'_, Bf16>, bias: &[f32], target: Target<'_, Bf16>) {
    assert!(wide::is_available(), "this machine has no AVX-512 BF16");
    #[expect(unsafe_code, reason = "instructions that not every machine has")]
    // SAFETY: looked for above.
    unsafe {
        by_panels(a, b, bias, target);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn by_panels(a: Rows<'_, Bf16>, b: Panels<'_, Bf16>, bias: &[f32], mut target: Target<'_, Bf16>) {
    for (index, lines) in b.numbers.chunks_exact(super::panel_length::<Bf16>(b.inner)).enumerate() {
        let column = index * PANEL;
        let columns = wide::Columns::new(bias, column, b.out);
        let mut row = 0;
        while row < a.count {
            let left = a.from(row);
            let mut sums = [[0.0; PANEL]; ROWS];
            let count = if left.count >= ROWS {
                add_products::<ROWS>(left, lines, &mut sums);
                ROWS
            } else if left.count >= FEW {
                add_products::<FEW>(left, lines, &mut sums);
                FEW
            } else {
                add_products::<1>(left, lines, &mut sums);
                1
            };
            columns.finish(&sums[..count], row, &mut target);
            row += count;
        }
    }
}

/// Sums of the first `COUNT` rows times one panel.
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn add_products<const COUNT: usize>(a: Rows<'_, Bf16>, lines: &[Bf16], out: &mut [[f32; PANEL]; ROWS]) {
    let pairs = lines.as_chunks::<{ 2 * PANEL }>().0;
    let rows: [&[[Bf16; 2]]; COUNT] =
        std::array::from_fn(|row| &a.values[row * a.stride..][..2 * pairs.len()].as_chunks::<2>().0[..pairs.len()]);
    let zero: __m512 = std::arch::x86_64::_mm512_setzero_ps();
    let mut sums = [[zero; 2]; COUNT];
    for (input, line) in pairs.iter().enumerate() {
        #[expect(unsafe_code, reason = "loads take pointers, and the type of pairs can only be made from bits")]
        // SAFETY: a line is 128 bytes; all bits are a value of either vector type.
        let weights = unsafe {
            let line = line.as_ptr().cast();
            [_mm512_loadu_epi16(line), _mm512_loadu_epi16(line.add(PANEL))]
                .map(|bits| std::mem::transmute::<__m512i, __m512bh>(bits))
        };
        for row in 0..COUNT {
            let [first, second] = rows[row][input];
            let pair = _mm512_set1_epi32((u32::from(first.0) | u32::from(second.0) << 16).cast_signed());
            #[expect(unsafe_code, reason = "the type of pairs can only be made from bits")]
            // SAFETY: all bits are a value of either vector type.
            let pair = unsafe { std::mem::transmute::<__m512i, __m512bh>(pair) };
            for half in 0..2 {
                sums[row][half] = _mm512_dpbf16_ps(sums[row][half], pair, weights[half]);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        for (out, sums) in out.as_chunks_mut::<16>().0.iter_mut().zip(sums) {
            #[expect(unsafe_code, reason = "stores take pointers")]
            // SAFETY: 16 numbers are as long as the register.
            unsafe {
                _mm512_storeu_ps(out.as_mut_ptr(), sums);
            }
        }
    }
}
