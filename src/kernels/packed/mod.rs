//! A matrix laid out for products with few or many rows: panels of outputs side by side, each read from front to back.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(super) mod bf16;
pub(super) mod tiles;
#[cfg(target_arch = "x86_64")]
mod wide;

use rayon::prelude::*;

use super::memory::Aligned;
use super::number::Number;

/// Outputs of a panel: two AVX-512 registers of sums, two tiles of AMX.
pub(super) const PANEL: usize = 32;

/// A matrix (out, in) in memory of its own.
#[derive(Debug)]
pub(super) struct Packed<N> {
    numbers: Aligned<N>,
    inner: usize,
    out: usize,
}

/// A matrix (out, in) as panels of 32 outputs, zeros where the last panel has fewer. A panel is line after line; a line is
/// the weights of its outputs for [`Number::GROUP`] inputs, those of one output side by side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panels<'a, N> {
    pub numbers: &'a [N],
    pub inner: usize,
    pub out: usize,
}

/// Numbers of one panel of a matrix with this many inputs.
pub(super) fn panel_length<N: Number>(inner: usize) -> usize {
    PANEL * N::padded(inner)
}

/// Numbers that a matrix of this many outputs and inputs takes.
pub(super) fn packed_length<N: Number>(out: usize, inner: usize) -> usize {
    out.div_ceil(PANEL) * panel_length::<N>(inner)
}

impl<N: Number> Packed<N> {
    /// From `out` rows of `inner` numbers, in memory that `number` understands.
    pub(super) fn new<V: Copy + Sync>(
        values: &[V],
        out: usize,
        inner: usize,
        number: impl Fn(V) -> N + Copy + Sync,
    ) -> Self {
        let mut numbers = Aligned::zeros(packed_length::<N>(out, inner));
        numbers
            .par_chunks_mut(panel_length::<N>(inner).max(1))
            .zip(values.par_chunks((PANEL * inner).max(1)))
            .for_each(|(panel, values)| {
                pack(panel, values.len() / inner, |output| &values[output * inner..][..inner], number);
            });
        Self { numbers, inner, out }
    }

    /// Outputs and inputs.
    pub(super) const fn dims(&self) -> (usize, usize) {
        (self.out, self.inner)
    }

    pub(super) fn panels(&self) -> Panels<'_, N> {
        Panels { numbers: &self.numbers, inner: self.inner, out: self.out }
    }
}

impl<N: Number> Panels<'_, N> {
    /// The panels from the `first` on, `count` of them or as many as there are.
    pub fn part(self, first: usize, count: usize) -> Self {
        let length = panel_length::<N>(self.inner);
        let numbers = &self.numbers[first * length..];
        let out = (self.out - first * PANEL).min(count * PANEL);
        Self { numbers: &numbers[..numbers.len().min(count * length)], out, ..self }
    }
}

/// Fills one panel from `filled` rows, each the weights of one output, 32 at most.
pub(super) fn pack<'r, N: Number, V: Copy + 'r>(
    panel: &mut [N],
    filled: usize,
    row: impl Fn(usize) -> &'r [V],
    number: impl Fn(V) -> N,
) {
    let rows: [&[V]; PANEL] = std::array::from_fn(|output| if output < filled { row(output) } else { &[] });
    let inner = rows[0].len();
    if filled < PANEL || inner < N::padded(inner) {
        panel.fill(N::default());
    }
    // Rows are read side by side, and the panel is written from front to back.
    for (group, line) in panel.chunks_exact_mut(PANEL * N::GROUP).enumerate() {
        for member in 0..N::GROUP {
            let input = group * N::GROUP + member;
            if input < inner {
                for (output, row) in rows[..filled].iter().enumerate() {
                    line[output * N::GROUP + member] = number(row[input]);
                }
            }
        }
    }
}

/// What is multiplied with the panels: `count` rows of [`Number::padded`] numbers, `stride` apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a, N> {
    pub values: &'a [N],
    pub stride: usize,
    pub count: usize,
}

impl<N: Number> Rows<'_, N> {
    /// Without the first `row` rows.
    #[inline(always)]
    fn from(self, row: usize) -> Self {
        Self { values: &self.values[row * self.stride..], count: self.count - row, ..self }
    }
}

/// What a sum begins from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Nothing: what was in the output is overwritten.
    Fresh,
    /// What is in the output already.
    Present,
}

/// Where a product goes: rows `stride` apart.
#[derive(Debug)]
pub(super) enum Target<'t, N> {
    /// As sums.
    Sums { out: &'t mut [f32], stride: usize, start: Start },
    /// As operands of the next product, after a GELU or as they are.
    Numbers { out: &'t mut [N], stride: usize, gelu: bool },
}

impl<N: Number> Target<'_, N> {
    /// Whether `rows` rows of `out` numbers fit.
    fn holds(&self, rows: usize, out: usize) -> bool {
        let (length, stride) = match self {
            Self::Sums { out, stride, .. } => (out.len(), *stride),
            Self::Numbers { out, stride, .. } => (out.len(), *stride),
        };
        rows == 0 || (rows - 1) * stride + out <= length
    }
}

/// target (rows, out) = a b^T + bias; an empty `bias` is none. On this thread alone.
///
/// # Panics
/// When an operand is too short for its sizes.
pub(super) fn multiply<N: Number>(a: Rows<'_, N>, b: Panels<'_, N>, bias: &[f32], target: Target<'_, N>) {
    let inner = N::padded(b.inner);
    assert!(
        b.inner > 0
            && (a.count == 0 || (a.count - 1) * a.stride + inner <= a.values.len())
            && packed_length::<N>(b.out, b.inner) <= b.numbers.len()
            && (bias.is_empty() || bias.len() == b.out)
            && target.holds(a.count, b.out),
        "operands too short"
    );
    N::multiply(a, b, bias, target);
}

#[cfg(test)]
mod tests {
    use super::super::number::Bf16;
    use super::super::tests::random;
    use super::*;

    fn numbers(shape: &[usize], seed: u64) -> Vec<f32> {
        random(shape, seed).flatten_all().unwrap().to_vec1::<f32>().unwrap()
    }

    /// Products of `multiply` against the plain sum of the rounded numbers, rows of operand and result lying apart.
    pub(super) fn check<N: Number>(
        multiply: impl Fn(Rows<'_, N>, Panels<'_, N>, &[f32], Target<'_, N>),
        tolerance: f32,
    ) {
        let ladder = [1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 64, 65];
        for (place, &rows) in ladder.iter().enumerate() {
            let (inner, out) =
                (ladder[(place * 5 + 3) % ladder.len()] + 64 * (place % 2), ladder[(place * 3 + 1) % ladder.len()]);
            let stride = N::padded(inner) + 32;
            let (a, w, bias) = (numbers(&[rows, inner], 1), numbers(&[out, inner], 2), numbers(&[out], 3));
            let mut spread = vec![N::default(); rows * stride];
            for (spread, a) in spread.chunks_mut(stride).zip(a.chunks(inner)) {
                spread.iter_mut().zip(a).for_each(|(spread, a)| *spread = N::from_f32(*a));
            }
            let packed = Packed::<N>::new(&w, out, inner, N::from_f32);
            assert_eq!(packed.dims(), (out, inner));
            let rounded = |x: f32| N::from_f32(x).to_f32();
            let product = |row: usize, column: usize| -> f32 {
                (0..inner).map(|i| rounded(a[row * inner + i]) * rounded(w[column * inner + i])).sum()
            };
            let operand = Rows { values: &spread, stride, count: rows };
            for (bias, start) in [(&bias[..], Start::Fresh), (&[], Start::Fresh), (&bias, Start::Present)] {
                let before = numbers(&[rows, out + 2], 4);
                let mut result = before.clone();
                multiply(operand, packed.panels(), bias, Target::Sums { out: &mut result, stride: out + 2, start });
                for (place, (got, before)) in result.iter().zip(&before).enumerate() {
                    let (row, column) = (place / (out + 2), place % (out + 2));
                    let expected = if column < out {
                        let start = if start == Start::Present { *before } else { 0.0 };
                        start + bias.get(column).unwrap_or(&0.0) + product(row, column)
                    } else {
                        *before
                    };
                    assert!(
                        (got - expected).abs() < 1e-5 * (inner as f32).sqrt() + 1e-5,
                        "{rows}x{inner}x{out} at {row}, {column}: {got} {expected}"
                    );
                }
            }
            for gelu in [false, true] {
                let mut result = vec![N::from_f32(9.0); rows * (out + 3)];
                multiply(operand, packed.panels(), &bias, Target::Numbers { out: &mut result, stride: out + 3, gelu });
                for (place, got) in result.iter().enumerate() {
                    let (row, column) = (place / (out + 3), place % (out + 3));
                    let expected = if column < out {
                        let x = product(row, column) + bias[column];
                        if gelu { N::gelu::<false>(x) } else { x }
                    } else {
                        9.0
                    };
                    let off = (got.to_f32() - expected).abs();
                    assert!(
                        off <= tolerance * expected.abs().max(1.0),
                        "{rows}x{inner}x{out} at {row}, {column}: {off}"
                    );
                }
            }
        }
    }

    #[test]
    fn equals_the_plain_sum_over_odd_sizes() {
        check::<f32>(multiply, 1e-4);
        check::<Bf16>(multiply, 5e-3);
    }

    #[test]
    fn parts_are_the_outputs_of_their_panels() {
        let w: Vec<f32> = (0..70u8).map(f32::from).collect();
        let packed = Packed::<f32>::new(&w, 70, 1, |w| w);
        let mut out = [0.0; 38];
        let one = Rows { values: &[1.0], stride: 1, count: 1 };
        let run = |panels: Panels<'_, f32>, out: &mut [f32]| {
            multiply(one, panels, &[], Target::Sums { out, stride: 38, start: Start::Fresh });
        };
        run(packed.panels().part(1, 9), &mut out);
        assert_eq!(out[..], w[32..]);
        run(packed.panels().part(0, 1), &mut out);
        assert_eq!(out[..32], w[..32]);
    }

    #[test]
    #[should_panic(expected = "too short")]
    fn refuses_operands_that_are_too_short() {
        let packed = Packed::<f32>::new(&[0.0; 6], 2, 3, |w| w);
        let rows = Rows { values: &[0.0; 5], stride: 3, count: 2 };
        multiply(rows, packed.panels(), &[], Target::Sums { out: &mut [0.0; 4], stride: 2, start: Start::Fresh });
    }
}
