//! Pillow 10.2's bicubic resize of RGB bytes, bit for bit. It knows no other filter and keeps no aspect ratio.
//!
//! The models were trained on pictures that went through that resize. Others differ from it visibly: a filter that is not
//! widened when shrinking loses small targets, and the other order of the two passes moves a fifth of the samples.
//!
//! Each axis is a pass of its own, the horizontal one first; a pass that would change nothing is skipped. Between the
//! passes the picture is rounded to bytes. Sums are whole numbers with 22 bits after the point.

use multiversion::multiversion;
use rayon::prelude::*;

use crate::geometry::Size;

/// Bits after the point of a weight: 32, less 8 for the bytes, less 2 for sums that overshoot and the sign.
///
/// Sums of 32 bits suffice, for any order of the terms, while `sum |weight|` stays below 2.005 (2^31 / (255 * 2^22), less
/// the half that is added). The weights of a sample sum up to 1, so it is (1 + r) / (1 - r), where r is what the negative
/// lobes weigh against the positive ones, and the bound asks for r < 1/3. Where pixels are one unit of the kernel apart
/// (enlarging), each sample at 1 + d in a negative lobe has one at d on the same side, never beyond the picture's edge, and
/// their ratio is (d (1 - d) / 2) / (1 + d - 3 d^2 / 2), at most 1/8: the sum is at most 1.29. Where they are closer
/// (shrinking), the ratio tends to that of the lobes' areas, 1/13, which gives 1.17; a test walks the sizes between.
const FRACTION: u32 = 22;
/// Half a level, which makes the final shift round to nearest.
const HALF: i32 = 1 << (FRACTION - 1);
/// Samples summed side by side: eight AVX2 vectors of 32-bit sums, and one cache line of bytes.
const LANES: usize = 64;
/// Rows that the horizontal pass takes together, four lanes each.
const ROWS: usize = LANES / 4;
/// Columns that are turned together, so that all of their cache lines stay in the first level: 8 KiB.
const TURNED: usize = 128;
/// Output rows per task of the vertical pass.
const STRIP: usize = 8;

/// (`from.height`, `from.width`, 3) bytes to (`to.height`, `to.width`, 3).
///
/// Runs on the rayon pool it is called in.
///
/// # Panics
/// When `rgb` has not three bytes per pixel of `from`, or one of the sizes is empty while the other is not.
///
/// ```
/// use tapline::geometry::Size;
/// use tapline::screenshot::resize;
/// let row = [0, 0, 0, 255, 255, 255];
/// let wider = resize(&row, Size::new(2, 1), Size::new(4, 1));
/// assert_eq!(wider.chunks(3).map(|pixel| pixel[0]).collect::<Vec<_>>(), [0, 53, 202, 255]);
/// ```
#[must_use]
pub fn resize(rgb: &[u8], from: Size, to: Size) -> Vec<u8> {
    let (from_width, from_height) = (from.width as usize, from.height as usize);
    let (to_width, to_height) = (to.width as usize, to.height as usize);
    assert_eq!(rgb.len(), from_width * from_height * 3, "not {from} of RGB");
    assert!(rgb.is_empty() == (to.pixels() == 0), "no way from {from} to {to}");
    if rgb.is_empty() || from == to {
        return rgb.to_vec();
    }
    let between;
    let wide = if from_width == to_width {
        rgb
    } else {
        between = horizontal(rgb, from_width, &Axis::new(from_width, to_width));
        &between
    };
    if from_height == to_height {
        return wide.to_vec();
    }
    vertical(wide, to_width * 3, &Axis::new(from_height, to_height))
}

/// One pass: which source samples make each output sample, and with what weights.
pub(super) struct Axis {
    windows: Vec<Window>,
    weights: Vec<i32>,
}

/// The samples `first..` of the source, as many as there are weights in `weights` of the axis.
struct Window {
    first: usize,
    weights: std::ops::Range<usize>,
}

impl Axis {
    /// In f64 and in Pillow's order of operations (`Resample.c`, `precompute_coeffs` and `normalize_coeffs_8bpc`): every
    /// rounding counts.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sides are far below 2^52; the float casts truncate as C does and turn what is negative into 0"
    )]
    pub(super) fn new(from: usize, to: usize) -> Self {
        let scale = from as f64 / to as f64;
        // The kernel widens when shrinking: this is what prevents aliasing.
        let stretch = scale.max(1.0);
        let support = 2.0 * stretch;
        let shrink = 1.0 / stretch;
        let mut axis = Self { windows: Vec::with_capacity(to), weights: Vec::with_capacity(4 * from.max(to) + 2 * to) };
        let mut exact = Vec::new();
        for output in 0..to {
            let center = (output as f64 + 0.5) * scale;
            let first = (center - support + 0.5) as usize;
            let end = ((center + support + 0.5) as usize).min(from);
            exact.clear();
            exact.extend((first..end).map(|sample| cubic(((sample as f64) - center + 0.5) * shrink)));
            let total: f64 = exact.iter().sum();
            let start = axis.weights.len();
            axis.weights.extend(exact.iter().map(|weight| {
                let fixed = weight / total * f64::from(1 << FRACTION);
                (fixed + if fixed < 0.0 { -0.5 } else { 0.5 }) as i32
            }));
            axis.windows.push(Window { first, weights: start..axis.weights.len() });
        }
        axis
    }

    /// First source sample and weights of each output sample.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (usize, &[i32])> {
        self.windows.iter().map(|window| (window.first, &self.weights[window.weights.clone()]))
    }
}

/// Keys' cubic with a = -0.5.
fn cubic(distance: f64) -> f64 {
    const A: f64 = -0.5;
    let t = distance.abs();
    if t < 1.0 {
        ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0
    } else if t < 2.0 {
        (((t - 5.0) * t + 8.0) * t - 4.0) * A
    } else {
        0.0
    }
}

/// A sum in fixed point to a level.
#[expect(clippy::cast_sign_loss, reason = "clamped to 0..=255 first")]
#[expect(clippy::inline_always, reason = "a function of its own would not have the caller's vector instructions")]
#[inline(always)]
fn level(sum: i32) -> u8 {
    (sum >> FRACTION).clamp(0, 255) as u8
}

/// The same pixel of [`ROWS`] rows, four bytes each: RGB and one that is ignored.
#[derive(Clone)]
#[repr(align(64))]
struct Column([[u8; 4]; ROWS]);

impl Column {
    const EMPTY: Self = Self([[0; 4]; ROWS]);

    #[inline]
    fn lanes(&self) -> &[u8; LANES] {
        self.0.as_flattened().first_chunk().expect("four times ROWS is LANES")
    }
}

fn horizontal(rgb: &[u8], width: usize, axis: &Axis) -> Vec<u8> {
    let to_width = axis.windows.len();
    let mut out = vec![0; rgb.len() / width * to_width];
    let blocks = out.par_chunks_mut(ROWS * to_width * 3).zip(rgb.par_chunks(ROWS * width * 3));
    blocks.for_each_init(
        || (vec![Column::EMPTY; width], vec![Column::EMPTY; to_width]),
        |(columns, narrow), (out, rows)| {
            touch(rows);
            turn(rows, columns);
            squeeze(columns, axis, narrow);
            turn_back(narrow, out);
        },
    );
    out
}

/// Reads a byte of each cache line in order, which the hardware sees coming. [`turn`] takes the rows in parts and would
/// wait for memory at each: this made landscape screenshots 1.3 times as fast.
fn touch(rows: &[u8]) {
    std::hint::black_box(rows.iter().step_by(64).fold(0, |all, byte| all ^ byte));
}

/// Rows to columns.
fn turn(rows: &[u8], columns: &mut [Column]) {
    let stride = columns.len() * 3;
    for (part, columns) in columns.chunks_mut(TURNED).enumerate() {
        for (row, pixels) in rows.chunks_exact(stride).take(ROWS).enumerate() {
            let pixels = &pixels[part * TURNED * 3..][..columns.len() * 3];
            let (fours, rest) = pixels.as_chunks::<12>();
            let (four_columns, rest_columns) = columns.as_chunks_mut::<4>();
            for (columns, four) in four_columns.iter_mut().zip(fours) {
                for (column, pixel) in columns.iter_mut().zip(spread(four)) {
                    column.0[row % ROWS] = pixel.to_le_bytes();
                }
            }
            for (column, pixel) in rest_columns.iter_mut().zip(rest.as_chunks::<3>().0) {
                column.0[row % ROWS][..3].copy_from_slice(pixel);
            }
        }
    }
}

/// Four pixels of three bytes as words; the upper byte of each is of no meaning.
#[inline]
fn spread(four: &[u8; 12]) -> [u32; 4] {
    let [a, b, c] = [0, 4, 8].map(|i| u32::from_le_bytes([four[i], four[i + 1], four[i + 2], four[i + 3]]));
    [a, a >> 24 | b << 8, b >> 16 | c << 16, c >> 8]
}

/// Four words as pixels of three bytes.
#[inline]
fn pack([a, b, c, d]: [u32; 4]) -> [u8; 12] {
    let [a, b, c] = [a & 0xff_ffff | b << 24, b >> 8 & 0xffff | c << 16, c >> 16 & 0xff | d << 8];
    let mut packed = [0; 12];
    for (bytes, word) in packed.as_chunks_mut::<4>().0.iter_mut().zip([a, b, c]) {
        *bytes = word.to_le_bytes();
    }
    packed
}

/// Columns to rows.
fn turn_back(columns: &[Column], rows: &mut [u8]) {
    let stride = columns.len() * 3;
    for (part, columns) in columns.chunks(TURNED).enumerate() {
        for (row, pixels) in rows.chunks_exact_mut(stride).take(ROWS).enumerate() {
            let pixels = &mut pixels[part * TURNED * 3..][..columns.len() * 3];
            let (fours, rest) = pixels.as_chunks_mut::<12>();
            let (four_columns, rest_columns) = columns.as_chunks::<4>();
            for (columns, four) in four_columns.iter().zip(fours) {
                *four = pack([0, 1, 2, 3].map(|column| u32::from_le_bytes(columns[column].0[row % ROWS])));
            }
            for (column, pixel) in rest_columns.iter().zip(rest.as_chunks_mut::<3>().0) {
                pixel.copy_from_slice(&column.0[row % ROWS][..3]);
            }
        }
    }
}

#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma",
    "x86_64+sse4.1"
))]
fn squeeze(columns: &[Column], axis: &Axis, out: &mut [Column]) {
    for (out, (first, weights)) in out.iter_mut().zip(axis.iter()) {
        let mut sums = Sums([HALF; LANES]);
        let columns = &columns[first..first + weights.len()];
        let (fours, rest) = weights.as_chunks::<4>();
        let (four_columns, rest_columns) = columns.as_chunks::<4>();
        for (weights, [a, b, c, d]) in fours.iter().zip(four_columns) {
            sums.add(weights, [a.lanes(), b.lanes(), c.lanes(), d.lanes()]);
        }
        for (weight, column) in rest.iter().zip(rest_columns) {
            sums.add(&[*weight], [column.lanes()]);
        }
        for (out, sums) in out.0.as_flattened_mut().iter_mut().zip(sums.0) {
            *out = level(sums);
        }
    }
}

fn vertical(rows: &[u8], stride: usize, axis: &Axis) -> Vec<u8> {
    let mut out = vec![0; axis.windows.len() * stride];
    let windows: Vec<_> = axis.iter().collect();
    out.par_chunks_mut(STRIP * stride).zip(windows.par_chunks(STRIP)).for_each(|(out, windows)| {
        for (out, (first, weights)) in out.chunks_exact_mut(stride).zip(windows) {
            blend(&rows[first * stride..], weights, out);
        }
    });
    out
}

#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma",
    "x86_64+sse4.1"
))]
fn blend(rows: &[u8], weights: &[i32], out: &mut [u8]) {
    let stride = out.len();
    let (blocks, tail) = out.as_chunks_mut::<LANES>();
    let done = blocks.len() * LANES;
    let (fours, rest) = weights.as_chunks::<4>();
    for (block, out) in blocks.iter_mut().enumerate() {
        let mut sums = Sums([HALF; LANES]);
        let lanes = |row: usize| -> &[u8; LANES] {
            rows[row * stride + block * LANES..].first_chunk().expect("a block within a row")
        };
        for (four, weights) in fours.iter().enumerate() {
            sums.add(weights, [0, 1, 2, 3].map(|row| lanes(four * 4 + row)));
        }
        for (row, weight) in (fours.len() * 4..).zip(rest) {
            sums.add(&[*weight], [lanes(row)]);
        }
        *out = sums.0.map(level);
    }
    for (column, out) in (done..).zip(tail) {
        let terms = weights.iter().zip(rows.chunks_exact(stride));
        *out = level(HALF + terms.map(|(weight, row)| weight * i32::from(row[column])).sum::<i32>());
    }
}

/// Sums of bytes times weights. Aligned, because sums that cross cache lines take three times as long.
#[repr(align(64))]
struct Sums([i32; LANES]);

impl Sums {
    /// Adds several products at once, which keeps the sums in registers meanwhile.
    #[expect(clippy::inline_always, reason = "a function of its own would not have the caller's vector instructions")]
    #[inline(always)]
    fn add<const TAPS: usize>(&mut self, weights: &[i32; TAPS], samples: [&[u8; LANES]; TAPS]) {
        for (lane, sum) in self.0.iter_mut().enumerate() {
            for tap in 0..TAPS {
                *sum += weights[tap] * i32::from(samples[tap][lane]);
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small sizes, and bytes of noise")]
mod tests {
    use super::*;

    /// The largest `sum |weight|` of an axis, in units.
    fn heaviest(from: usize, to: usize) -> f64 {
        let axis = Axis::new(from, to);
        let sums = axis.iter().map(|(_, weights)| weights.iter().map(|weight| f64::from(weight.abs())).sum::<f64>());
        sums.fold(0.0, f64::max) / f64::from(1 << FRACTION)
    }

    #[test]
    fn sums_of_32_bits_suffice() {
        let small = (1..140).flat_map(|from| (1..140).map(move |to| (from, to)));
        let large = [1079, 1080, 1920, 2160, 2400, 3840, 8191, 65_535].map(|from| (from, 768));
        for (from, to) in small.chain(large).chain([(768, 767), (768, 769), (65_535, 1), (1, 65_535)]) {
            assert!(heaviest(from, to) <= 1.3, "{from} to {to}: {}", heaviest(from, to));
        }
    }

    #[test]
    fn windows_stay_within_the_source_and_weights_sum_up_to_one() {
        for (from, to) in [(1, 1), (1, 9), (9, 1), (2, 3), (1080, 768), (2400, 768), (33, 500)] {
            for (first, weights) in Axis::new(from, to).iter() {
                assert!(!weights.is_empty() && first + weights.len() <= from, "{from} to {to}");
                let sum: i32 = weights.iter().sum();
                assert!((sum - (1 << FRACTION)).unsigned_abs() as usize <= weights.len(), "{from} to {to}");
            }
        }
    }

    #[test]
    fn a_flat_picture_stays_flat() {
        for (from, to) in [((1, 1), (5, 7)), ((40, 90), (33, 33)), ((90, 40), (100, 3)), ((17, 17), (17, 40))] {
            let (from, to) = (Size::new(from.0, from.1), Size::new(to.0, to.1));
            let rgb = [0, 137, 255].repeat(from.pixels() as usize);
            assert_eq!(resize(&rgb, from, to), [0, 137, 255].repeat(to.pixels() as usize), "{from} to {to}");
        }
    }

    #[test]
    fn the_same_size_changes_nothing_and_no_pixels_stay_none() {
        let rgb: Vec<u8> = (0..=254).collect();
        assert_eq!(resize(&rgb, Size::new(5, 17), Size::new(5, 17)), rgb);
        assert!(resize(&[], Size::new(0, 3), Size::new(0, 3)).is_empty());
    }

    /// Sizes around the numbers of rows, lanes and columns that are taken together, against one sum per sample.
    #[test]
    fn blocks_and_their_remainders_equal_the_plain_sum() {
        let plain = |rgb: &[u8], from: Size, to: Size| {
            let (wide, tall) = (from.width as usize, from.height as usize);
            let mut across = Vec::new();
            for row in rgb.chunks(wide * 3) {
                for (first, weights) in Axis::new(wide, to.width as usize).iter() {
                    across.extend((0..3).map(|c| {
                        let terms = weights.iter().zip(first..).map(|(weight, x)| weight * i32::from(row[x * 3 + c]));
                        level(HALF + terms.sum::<i32>())
                    }));
                }
            }
            let stride = to.width as usize * 3;
            let mut down = Vec::new();
            for (first, weights) in Axis::new(tall, to.height as usize).iter() {
                down.extend((0..stride).map(|x| {
                    let terms =
                        weights.iter().zip(first..).map(|(weight, y)| weight * i32::from(across[y * stride + x]));
                    level(HALF + terms.sum::<i32>())
                }));
            }
            down
        };
        for (from, to) in [((131, 15), (130, 16)), ((3, 33), (129, 5)), ((257, 17), (21, 22)), ((22, 47), (43, 48))] {
            let (from, to) = (Size::new(from.0, from.1), Size::new(to.0, to.1));
            let rgb: Vec<u8> =
                (0..from.pixels() as u32 * 3).map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
            assert_eq!(resize(&rgb, from, to), plain(&rgb, from, to), "{from} to {to}");
        }
    }
}
