//! The product in tiles of sums that fill the vector registers, in plain loops that are compiled for several instruction sets.

use multiversion::{multiversion, target::target_cfg_f};

use super::super::arithmetic::fma;
use super::super::number::{Bf16, Number};
use super::{PANEL, Panels, Rows, Start, Target};

/// A number format whose lines plain loops can read.
pub(super) trait Tiled: Number {
    /// Adds the products of all inputs to `sums`; `part` is which `WIDTH` outputs of a panel.
    fn add_products<const ROWS: usize, const WIDTH: usize, const FUSED: bool>(
        rows: [&[Self]; ROWS],
        lines: &[Self],
        part: usize,
        sums: &mut [[f32; WIDTH]; ROWS],
    );
}

/// See [`super::multiply`].
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma", "x86_64+avx2+fma"))]
pub(in super::super) fn multiply<N: Tiled>(a: Rows<'_, N>, b: Panels<'_, N>, bias: &[f32], target: Target<'_, N>) {
    let wide = target_cfg_f!(target_feature = "avx512f");
    let fused = target_cfg_f!(target_feature = "fma") || cfg!(target_arch = "aarch64");
    // Sums of a tile fill three quarters of the registers: 24 of 32, 12 of 16, or 24 of 32 on aarch64, and 8 of 16.
    if wide {
        by_panels::<N, 12, 32, true>(a, b, bias, target);
    } else if fused {
        by_panels::<N, 6, 16, true>(a, b, bias, target);
    } else {
        by_panels::<N, 4, 8, false>(a, b, bias, target);
    }
}

#[inline(always)]
fn by_panels<N: Tiled, const ROWS: usize, const WIDTH: usize, const FUSED: bool>(
    a: Rows<'_, N>,
    b: Panels<'_, N>,
    bias: &[f32],
    mut target: Target<'_, N>,
) {
    for (index, lines) in b.numbers.chunks_exact(super::panel_length::<N>(b.inner)).enumerate() {
        let first = index * PANEL;
        let last = b.out.min(first + PANEL);
        for (part, column) in (first..last).step_by(WIDTH).enumerate() {
            let width = WIDTH.min(last - column);
            let strip = Strip { lines, inner: b.inner, part, column, bias: bias_of(bias, column, width), width };
            let mut row = 0;
            while row + ROWS <= a.count {
                tile::<N, ROWS, WIDTH, FUSED>(a, row, &strip, &mut target);
                row += ROWS;
            }
            while row + FEW <= a.count {
                tile::<N, FEW, WIDTH, FUSED>(a, row, &strip, &mut target);
                row += FEW;
            }
            while row < a.count {
                tile::<N, 1, WIDTH, FUSED>(a, row, &strip, &mut target);
                row += 1;
            }
        }
    }
}

/// Rows of the tiles that what is left of a block is cut into.
const FEW: usize = 4;

/// Some columns of the product: `width` outputs from `column` on, the `part`th piece of each line.
struct Strip<'a, N, const WIDTH: usize> {
    lines: &'a [N],
    inner: usize,
    part: usize,
    column: usize,
    width: usize,
    bias: [f32; WIDTH],
}

/// The bias of `width` columns, zeros where there is none.
#[inline(always)]
pub(super) fn bias_of<const WIDTH: usize>(bias: &[f32], column: usize, width: usize) -> [f32; WIDTH] {
    let mut columns = [0.0; WIDTH];
    if !bias.is_empty() {
        columns[..width].copy_from_slice(&bias[column..column + width]);
    }
    columns
}

/// `ROWS` rows of a strip.
#[inline(always)]
fn tile<N: Tiled, const ROWS: usize, const WIDTH: usize, const FUSED: bool>(
    a: Rows<'_, N>,
    row: usize,
    strip: &Strip<'_, N, WIDTH>,
    target: &mut Target<'_, N>,
) {
    let mut sums = [[0.0; WIDTH]; ROWS];
    let inner = N::padded(strip.inner);
    let rows: [&[N]; ROWS] = std::array::from_fn(|index| &a.values[(row + index) * a.stride..][..inner]);
    N::add_products::<ROWS, WIDTH, FUSED>(rows, strip.lines, strip.part, &mut sums);
    for (index, sums) in sums.iter().enumerate() {
        finish::<N, WIDTH, FUSED>(sums, &strip.bias, strip.width, (row + index, strip.column), target);
    }
}

/// Brings `width` sums of a row to where they go.
#[inline(always)]
pub(super) fn finish<N: Number, const WIDTH: usize, const FUSED: bool>(
    sums: &[f32; WIDTH],
    bias: &[f32; WIDTH],
    width: usize,
    (row, column): (usize, usize),
    target: &mut Target<'_, N>,
) {
    let mut values = *sums;
    for lane in 0..WIDTH {
        values[lane] += bias[lane];
    }
    match target {
        Target::Sums { out, stride, start } => {
            let out = &mut out[row * *stride + column..];
            let present = *start == Start::Present;
            // Whole strips in loops over constants: the others are at the edge only.
            match out.first_chunk_mut::<WIDTH>() {
                Some(out) if width == WIDTH => {
                    for lane in 0..WIDTH {
                        out[lane] = if present { out[lane] + values[lane] } else { values[lane] };
                    }
                }
                _ => {
                    for (out, value) in out[..width].iter_mut().zip(values) {
                        *out = if present { *out + value } else { value };
                    }
                }
            }
        }
        Target::Numbers { out, stride, gelu } => {
            if *gelu {
                for value in &mut values {
                    *value = N::gelu::<FUSED>(*value);
                }
            }
            let out = &mut out[row * *stride + column..];
            match out.first_chunk_mut::<WIDTH>() {
                Some(out) if width == WIDTH => {
                    for lane in 0..WIDTH {
                        out[lane] = N::from_f32(values[lane]);
                    }
                }
                _ => out[..width].iter_mut().zip(values).for_each(|(out, value)| *out = N::from_f32(value)),
            }
        }
    }
}

impl Tiled for f32 {
    /// Loops over constants: iterators do not become vector instructions here. The copy of the sums stays in registers from
    /// the first input to the last.
    #[inline(always)]
    fn add_products<const ROWS: usize, const WIDTH: usize, const FUSED: bool>(
        rows: [&[Self]; ROWS],
        lines: &[Self],
        part: usize,
        out: &mut [[f32; WIDTH]; ROWS],
    ) {
        let mut sums = *out;
        let inner = rows[0].len();
        for (input, line) in lines.as_chunks::<PANEL>().0[..inner].iter().enumerate() {
            let weights = &line.as_chunks::<WIDTH>().0[part];
            for row in 0..ROWS {
                let value = rows[row][input];
                for lane in 0..WIDTH {
                    sums[row][lane] = fma::<FUSED>(value, weights[lane], sums[row][lane]);
                }
            }
        }
        *out = sums;
    }
}

impl Tiled for Bf16 {
    #[inline(always)]
    fn add_products<const ROWS: usize, const WIDTH: usize, const FUSED: bool>(
        rows: [&[Self]; ROWS],
        lines: &[Self],
        part: usize,
        out: &mut [[f32; WIDTH]; ROWS],
    ) {
        let mut sums = *out;
        let pairs = rows.map(|row| row.as_chunks::<2>().0);
        let inner = pairs[0].len();
        for (input, line) in lines.as_chunks::<{ 2 * PANEL }>().0[..inner].iter().enumerate() {
            let weights = &line.as_chunks::<2>().0[part * WIDTH..][..WIDTH];
            for row in 0..ROWS {
                let [first, second] = pairs[row][input].map(Number::to_f32);
                for lane in 0..WIDTH {
                    let [a, b] = weights[lane].map(Number::to_f32);
                    sums[row][lane] = fma::<FUSED>(second, b, fma::<FUSED>(first, a, sums[row][lane]));
                }
            }
        }
        *out = sums;
    }
}
