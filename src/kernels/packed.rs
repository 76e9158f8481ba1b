//! A matrix laid out for products with few or many rows: panels of outputs side by side, each read from front to back.

use multiversion::{multiversion, target::target_cfg_f};
use rayon::prelude::*;

use super::arithmetic::fma;

/// Outputs of a panel: two AVX-512 registers, four AVX2 ones.
pub(super) const PANEL: usize = 32;

/// The weights of the outputs of a panel for one input.
pub(super) type Line = [f32; PANEL];

/// A matrix (out, in) in memory of its own.
#[derive(Debug, Clone)]
pub struct Packed {
    lines: Vec<Line>,
    inner: usize,
    out: usize,
}

/// A matrix (out, in) as panels: `in` lines for each 32 outputs, zeros where the last panel has fewer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panels<'a> {
    pub lines: &'a [Line],
    pub inner: usize,
    pub out: usize,
}

/// Lines that a matrix of this many outputs and inputs takes.
pub(super) const fn lines(out: usize, inner: usize) -> usize {
    out.div_ceil(PANEL) * inner
}

impl Packed {
    /// From `out` rows of `inner` numbers.
    pub(super) fn new(values: &[f32], out: usize, inner: usize) -> Self {
        let mut panels = vec![[0.0; PANEL]; lines(out, inner)];
        panels
            .par_chunks_mut(inner.max(1))
            .zip(values.par_chunks((PANEL * inner).max(1)))
            .for_each(|(panel, values)| pack(panel, values.chunks_exact(inner)));
        Self { lines: panels, inner, out }
    }

    /// Outputs and inputs.
    pub(super) const fn dims(&self) -> (usize, usize) {
        (self.out, self.inner)
    }

    pub(super) fn panels(&self) -> Panels<'_> {
        Panels { lines: &self.lines, inner: self.inner, out: self.out }
    }
}

impl Panels<'_> {
    /// The panels from the `first` on, `count` of them or as many as there are.
    pub fn part(self, first: usize, count: usize) -> Self {
        let lines = &self.lines[first * self.inner..];
        let out = (self.out - first * PANEL).min(count * PANEL);
        Self { lines: &lines[..lines.len().min(count * self.inner)], out, ..self }
    }
}

/// Fills one panel: each row is the weights of one output, 32 at most.
pub(super) fn pack<'r>(panel: &mut [Line], rows: impl ExactSizeIterator<Item = &'r [f32]>) {
    let filled = rows.len();
    for (output, row) in rows.enumerate() {
        for (line, value) in panel.iter_mut().zip(row) {
            line[output] = *value;
        }
    }
    for line in panel {
        line[filled..].fill(0.0);
    }
}

/// What is multiplied with the panels: `count` rows of `inner` numbers, `stride` apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    pub values: &'a [f32],
    pub stride: usize,
    pub count: usize,
}

/// What a product begins from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Nothing: what was in the output is overwritten.
    Fresh,
    /// What is in the output already.
    Present,
}

/// out (rows, out), rows `stride` apart, = start + bias + a b^T; an empty `bias` is none. On this thread alone.
///
/// # Panics
/// When an operand is too short for its sizes.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma", "x86_64+avx2+fma"))]
pub(super) fn multiply<'a>(a: Rows<'a>, b: Panels<'a>, bias: &[f32], start: Start, out: &mut [f32], stride: usize) {
    let wide = target_cfg_f!(target_feature = "avx512f");
    let fused = target_cfg_f!(target_feature = "fma") || cfg!(target_arch = "aarch64");
    // Sums of a tile fill three quarters of the registers: 24 of 32, 12 of 16, or 24 of 32 on aarch64, and 8 of 16.
    if wide {
        by_panels::<12, 32, true>(a, b, bias, start, out, stride);
    } else if fused {
        by_panels::<6, 16, true>(a, b, bias, start, out, stride);
    } else {
        by_panels::<4, 8, false>(a, b, bias, start, out, stride);
    }
}

#[inline(always)]
fn by_panels<const ROWS: usize, const WIDTH: usize, const FUSED: bool>(
    a: Rows<'_>,
    b: Panels<'_>,
    bias: &[f32],
    start: Start,
    out: &mut [f32],
    stride: usize,
) {
    for (index, lines) in b.lines.chunks_exact(b.inner).enumerate() {
        let first = index * PANEL;
        let last = b.out.min(first + PANEL);
        for (part, column) in (first..last).step_by(WIDTH).enumerate() {
            let width = WIDTH.min(last - column);
            let bias = if bias.is_empty() { bias } else { &bias[column..column + width] };
            let strip = Strip { lines, part, width, bias, start };
            let mut row = 0;
            while row + ROWS <= a.count {
                tile::<ROWS, WIDTH, FUSED>(a.from(row), strip, &mut out[row * stride + column..], stride);
                row += ROWS;
            }
            while row + FEW <= a.count {
                tile::<FEW, WIDTH, FUSED>(a.from(row), strip, &mut out[row * stride + column..], stride);
                row += FEW;
            }
            while row < a.count {
                tile::<1, WIDTH, FUSED>(a.from(row), strip, &mut out[row * stride + column..], stride);
                row += 1;
            }
        }
    }
}

/// Rows of the tiles that what is left of a block is cut into.
const FEW: usize = 4;

/// Some columns of the product: `width` outputs, from the `part`th piece of each line.
#[derive(Clone, Copy)]
struct Strip<'a> {
    lines: &'a [Line],
    part: usize,
    width: usize,
    bias: &'a [f32],
    start: Start,
}

/// `ROWS` rows of a strip.
#[inline(always)]
fn tile<const ROWS: usize, const WIDTH: usize, const FUSED: bool>(
    a: Rows<'_>,
    strip: Strip<'_>,
    out: &mut [f32],
    stride: usize,
) {
    let mut sums = [[0.0; WIDTH]; ROWS];
    add_products::<ROWS, WIDTH, FUSED>(a, strip, &mut sums);
    let mut bias = [0.0; WIDTH];
    bias[..strip.bias.len()].copy_from_slice(strip.bias);
    for (row, sums) in sums.iter().enumerate() {
        let out = &mut out[row * stride..][..strip.width];
        if strip.start == Start::Fresh {
            out.iter_mut().zip(sums.iter().zip(&bias)).for_each(|(out, (sum, bias))| *out = sum + bias);
        } else {
            out.iter_mut().zip(sums.iter().zip(&bias)).for_each(|(out, (sum, bias))| *out += sum + bias);
        }
    }
}

/// The innermost loops, over constants: iterators do not become vector instructions here. The copy of the sums stays in
/// registers from the first input to the last.
#[inline(always)]
fn add_products<const ROWS: usize, const WIDTH: usize, const FUSED: bool>(
    a: Rows<'_>,
    strip: Strip<'_>,
    out: &mut [[f32; WIDTH]; ROWS],
) {
    let rows: [&[f32]; ROWS] = std::array::from_fn(|row| &a.values[row * a.stride..][..strip.lines.len()]);
    let mut sums = *out;
    for (input, line) in strip.lines.iter().enumerate() {
        let weights = &line.as_chunks::<WIDTH>().0[strip.part];
        for row in 0..ROWS {
            let value = rows[row][input];
            for lane in 0..WIDTH {
                sums[row][lane] = fma::<FUSED>(value, weights[lane], sums[row][lane]);
            }
        }
    }
    *out = sums;
}

impl Rows<'_> {
    /// Without the first `row` rows.
    #[inline(always)]
    fn from(self, row: usize) -> Self {
        Self { values: &self.values[row * self.stride..], count: self.count - row, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::random;
    use super::*;

    #[test]
    fn equals_the_plain_sum_over_odd_sizes() {
        for (rows, inner, out) in [(1, 1, 1), (3, 7, 31), (4, 64, 32), (12, 5, 33), (13, 33, 65), (29, 8, 17)] {
            let numbers = |shape: &[usize], seed| random(shape, seed).flatten_all().unwrap().to_vec1::<f32>().unwrap();
            // Rows of the operands and of the result lie apart.
            let (a, w, bias) = (numbers(&[rows, inner + 3], 1), numbers(&[out, inner], 2), numbers(&[out], 3));
            let packed = Packed::new(&w, out, inner);
            assert_eq!(packed.dims(), (out, inner));
            for (bias, start) in [(&bias[..], Start::Fresh), (&[], Start::Fresh), (&bias, Start::Present)] {
                let before = numbers(&[rows, out + 2], 4);
                let mut result = before.clone();
                let a_rows = Rows { values: &a, stride: inner + 3, count: rows };
                multiply(a_rows, packed.panels(), bias, start, &mut result, out + 2);
                for (place, (got, before)) in result.iter().zip(&before).enumerate() {
                    let (row, column) = (place / (out + 2), place % (out + 2));
                    let expected = if column < out {
                        let terms = (0..inner).map(|i| a[row * (inner + 3) + i] * w[column * inner + i]);
                        let start = if start == Start::Present { *before } else { 0.0 };
                        start + bias.get(column).unwrap_or(&0.0) + terms.sum::<f32>()
                    } else {
                        *before
                    };
                    assert!((got - expected).abs() < 1e-5, "{rows}x{inner}x{out} at {row}, {column}");
                }
            }
        }
    }

    #[test]
    fn parts_are_the_outputs_of_their_panels() {
        let w: Vec<f32> = (0..70u8).map(f32::from).collect();
        let packed = Packed::new(&w, 70, 1);
        let mut out = [0.0; 38];
        let one = Rows { values: &[1.0], stride: 1, count: 1 };
        multiply(one, packed.panels().part(1, 9), &[], Start::Fresh, &mut out, 38);
        assert_eq!(out[..], w[32..]);
        multiply(one, packed.panels().part(0, 1), &[], Start::Fresh, &mut out, 38);
        assert_eq!(out[..32], w[..32]);
    }
}
