//! The keys and values of what a decoder has been fed so far, and attention to them.

use candle_core::Result;
use multiversion::{multiversion, target::target_cfg_f};

use super::TASK;
use crate::kernels::arithmetic::{fma, softmax};

/// Keys and values of each row's past, for all layers. Where a row takes over another's past, as beams do, only the places
/// are noted: keys and values stay where they were written.
#[derive(Debug)]
pub struct History {
    layers: Vec<Layer>,
    /// (rows, positions): the row in whose memory a row's position is kept.
    places: Vec<usize>,
    /// What `places` are put together in.
    next: Vec<usize>,
    /// Room for scores: (rows, positions).
    scores: Vec<f32>,
    rows: usize,
    positions: usize,
    heads: usize,
    channels: usize,
}

/// (rows, positions, channels) each.
#[derive(Debug, Clone, Default)]
struct Layer {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// What some rows see.
#[derive(Clone, Copy)]
struct Past<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    /// (rows, positions).
    places: &'a [usize],
    positions: usize,
    /// Positions that were there before.
    length: usize,
    heads: usize,
    channels: usize,
}

impl History {
    /// Of a decoder with this many layers, heads and channels, without room for anything yet.
    #[must_use]
    pub fn new(layers: usize, heads: usize, channels: usize) -> Self {
        let (places, next, scores) = (Vec::new(), Vec::new(), Vec::new());
        let layers = vec![Layer::default(); layers];
        Self { layers, places, next, scores, rows: 0, positions: 0, heads, channels }
    }

    /// Makes room for as many rows and positions; what is there stays. Allocates only to grow.
    pub fn reserve(&mut self, rows: usize, positions: usize) {
        if rows <= self.rows && positions <= self.positions {
            return;
        }
        let (old_rows, old) = (self.rows, self.positions);
        self.rows = self.rows.max(rows);
        self.positions = self.positions.max(positions);
        let (rows, new, channels) = (self.rows, self.positions, self.channels);
        for layer in &mut self.layers {
            for numbers in [&mut layer.keys, &mut layer.values] {
                widen(numbers, (old_rows, old * channels), (rows, new * channels));
            }
        }
        widen(&mut self.places, (old_rows, old), (rows, new));
        self.next.resize(rows * new, 0);
        self.scores.resize(rows * new, 0.0);
    }

    /// Makes the rows copies of these present rows, of which `length` positions are filled. Room must be reserved.
    pub fn select(&mut self, rows: &[usize], length: usize) {
        if rows.iter().enumerate().all(|(new, &old)| new == old) {
            return;
        }
        for (new, &old) in rows.iter().enumerate() {
            let places = &self.places[old * self.positions..][..length];
            self.next[new * self.positions..][..length].copy_from_slice(places);
        }
        std::mem::swap(&mut self.places, &mut self.next);
    }

    /// Appends keys and values to each row's `length` and attends to all of them, causally: softmax(q k^T / sqrt(head size))
    /// v for each head. `qkv` is (rows, new, 3 * channels), queries before keys before values; out is (rows, new, channels).
    ///
    /// # Errors
    /// Lengths that do not fit, or room that was not reserved.
    pub fn attend(&mut self, layer: usize, rows: usize, length: usize, qkv: &[f32], out: &mut [f32]) -> Result<()> {
        let channels = self.channels;
        let new = out.len() / (rows * channels).max(1);
        let fits = out.len() == rows * new * channels && qkv.len() == 3 * out.len();
        if !fits || rows == 0 || new == 0 || rows > self.rows || length + new > self.positions {
            candle_core::bail!("{} new numbers after {length} positions of {rows} rows do not fit", qkv.len());
        }
        let Some(layer) = self.layers.get_mut(layer) else { candle_core::bail!("there is no layer {layer}") };
        for (row, qkv) in qkv.chunks_exact(new * 3 * channels).enumerate() {
            for (index, qkv) in qkv.chunks_exact(3 * channels).enumerate() {
                let at = (row * self.positions + length + index) * channels;
                layer.keys[at..at + channels].copy_from_slice(&qkv[channels..2 * channels]);
                layer.values[at..at + channels].copy_from_slice(&qkv[2 * channels..]);
            }
            self.places[row * self.positions + length..][..new].fill(row);
        }
        let past = Past {
            keys: &layer.keys,
            values: &layer.values,
            places: &self.places[..rows * self.positions],
            positions: self.positions,
            length,
            heads: self.heads,
            channels,
        };
        each_row(past, qkv, &mut self.scores[..rows * self.positions], out);
        Ok(())
    }
}

/// Puts rows further apart and more rows after them.
fn widen<T: Copy + Default>(numbers: &mut Vec<T>, (rows, from): (usize, usize), (more, to): (usize, usize)) {
    if from == to {
        return numbers.resize(more * to, T::default());
    }
    let mut wide = vec![T::default(); more * to];
    for row in 0..rows {
        wide[row * to..][..from].copy_from_slice(&numbers[row * from..][..from]);
    }
    *numbers = wide;
}

/// Halves the rows among threads until a task is not worth halving.
fn each_row(past: Past<'_>, qkv: &[f32], scores: &mut [f32], out: &mut [f32]) {
    let rows = past.places.len() / past.positions;
    if rows > 1 && 2 * out.len() * past.length > TASK {
        let half = rows / 2;
        let (left, right) = past.places.split_at(half * past.positions);
        let (left_qkv, right_qkv) = qkv.split_at(qkv.len() / rows * half);
        let (left_scores, right_scores) = scores.split_at_mut(half * past.positions);
        let (left_out, right_out) = out.split_at_mut(out.len() / rows * half);
        rayon::join(
            || each_row(Past { places: left, ..past }, left_qkv, left_scores, left_out),
            || each_row(Past { places: right, ..past }, right_qkv, right_scores, right_out),
        );
        return;
    }
    attend_rows(past, qkv, scores, out);
}

#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+fma",
    "x86_64+avx2+fma",
    "x86_64+avx+f16c"
))]
fn attend_rows<'a>(past: Past<'a>, qkv: &[f32], scores: &mut [f32], out: &mut [f32]) {
    if target_cfg_f!(target_feature = "fma") || cfg!(target_arch = "aarch64") {
        attend_all::<true>(past, qkv, scores, out);
    } else {
        attend_all::<false>(past, qkv, scores, out);
    }
}

#[inline(always)]
fn attend_all<const FUSED: bool>(past: Past<'_>, qkv: &[f32], scores: &mut [f32], out: &mut [f32]) {
    let Past { keys, values, places, positions, length, heads, channels } = past;
    let (size, new) = (channels / heads, out.len() / (places.len() / positions) / channels);
    let scale = (size as f32).powf(-0.5);
    let tokens = qkv.chunks_exact(3 * channels).zip(out.chunks_exact_mut(channels)).enumerate();
    for (token, (qkv, out)) in tokens {
        let (row, seen) = (token / new, length + token % new + 1);
        let places = &places[row * positions..][..seen];
        let scores = &mut scores[row * positions..][..seen];
        for head in (0..channels).step_by(size) {
            let of = |numbers: &'_ [f32], position: usize| -> std::ops::Range<usize> {
                let start = (places[position] * positions + position) * channels + head;
                start..numbers.len().min(start + size)
            };
            let q = &qkv[head..head + size];
            for (position, score) in scores.iter_mut().enumerate() {
                *score = scale * dot::<FUSED>(q, &keys[of(keys, position)]);
            }
            softmax(scores, seen, seen);
            let out = &mut out[head..head + size];
            out.fill(0.0);
            for (position, &weight) in scores.iter().enumerate() {
                for (out, &value) in out.iter_mut().zip(&values[of(values, position)]) {
                    *out = fma::<FUSED>(weight, value, *out);
                }
            }
        }
    }
}

/// A sum of products, kept in as many lanes as an AVX-512 register has.
#[inline(always)]
fn dot<const FUSED: bool>(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut lanes = [0.0f32; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] = fma::<FUSED>(a[lane], b[lane], lanes[lane]);
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::*;
    use crate::kernels::numbers;
    use crate::kernels::tests::{assert_close, random};
    use crate::kernels::{AttentionShape, attention};

    /// The same on tensors, with everything that each row has been fed: (rows, tokens, 3 * channels).
    fn reference(fed: &Tensor, heads: usize, new: usize) -> Tensor {
        let (_, tokens, width) = fed.dims3().unwrap();
        let part = |index: usize| fed.narrow(2, index * width / 3, width / 3).unwrap().contiguous().unwrap();
        let q = part(0).narrow(1, tokens - new, new).unwrap();
        let shape = AttentionShape { heads, real_keys: None, causal: Some(tokens - new) };
        attention(&q, &part(1), &part(2), shape).unwrap()
    }

    fn attend(history: &mut History, length: usize, fed: &Tensor) -> Tensor {
        let (rows, new, width) = fed.dims3().unwrap();
        let mut out = vec![f32::NAN; rows * new * width / 3];
        for layer in 0..2 {
            history.attend(layer, rows, length, &numbers(fed).unwrap(), &mut out).unwrap();
        }
        Tensor::from_vec(out, (rows, new, width / 3), &Device::Cpu).unwrap()
    }

    #[test]
    fn equals_attention_on_tensors_while_rows_come_and_go() {
        for (heads, size) in [(1, 1), (2, 3), (3, 16), (1, 33), (12, 64)] {
            let width = 3 * heads * size;
            let mut history = History::new(2, heads, heads * size);
            history.reserve(2, 5);
            let first = random(&[2, 3, width], 1);
            assert_close(&attend(&mut history, 0, &first), &reference(&first, heads, 3), 1e-5);
            let mut fed = first;
            // Wider, reordered, longer than was reserved, and narrower again.
            for (seed, rows) in
                [&[0, 0, 0, 1, 1, 1][..], &[2, 0, 0, 3, 5, 4], &[1, 0, 2], &[0, 1, 2], &[2]].iter().enumerate()
            {
                let length = fed.dim(1).unwrap();
                history.reserve(rows.len(), length + 1);
                history.select(rows, length);
                let index: Vec<u32> = rows.iter().map(|&row| u32::try_from(row).unwrap()).collect();
                let kept = fed.index_select(&Tensor::new(index, &Device::Cpu).unwrap(), 0).unwrap();
                let new = random(&[rows.len(), 1, width], 10 + seed as u64);
                fed = Tensor::cat(&[&kept, &new], 1).unwrap();
                assert_close(&attend(&mut history, length, &new), &reference(&fed, heads, 1), 1e-5);
            }
            // Back to three positions, and on from there.
            let new = random(&[1, 2, width], 99);
            fed = Tensor::cat(&[&fed.narrow(1, 0, 3).unwrap(), &new], 1).unwrap();
            assert_close(&attend(&mut history, 3, &new), &reference(&fed, heads, 2), 1e-5);
        }
    }

    #[test]
    fn refuses_what_there_is_no_room_for() {
        let mut history = History::new(1, 1, 2);
        history.reserve(1, 2);
        assert!(history.attend(0, 1, 1, &[0.0; 12], &mut [0.0; 4]).is_err(), "two positions after one");
        assert!(history.attend(0, 2, 0, &[0.0; 12], &mut [0.0; 4]).is_err(), "two rows");
        assert!(history.attend(1, 1, 0, &[0.0; 6], &mut [0.0; 2]).is_err(), "two layers");
        assert!(history.attend(0, 1, 0, &[0.0; 5], &mut [0.0; 2]).is_err(), "half a token");
    }
}
