//! Attention of a few queries to encoder states, whose keys and values are computed and packed once and read at every step.

use candle_core::{Result, Tensor};
use rayon::prelude::*;

use super::TASK;
use super::columns::{Columns, ROWS};
use crate::kernels::arithmetic::softmax;
use crate::kernels::memory::Aligned;
use crate::kernels::numbers;
use crate::kernels::packed::{PANEL, Panels, Rows, Start, Target, multiply, pack, packed_length, panel_length};

/// The keys and values of one prompt's states for one layer, each head's apart: two matrices that the queries and then the
/// softmax of their scores are multiplied with.
#[derive(Debug)]
pub struct Memory {
    /// (heads, tokens, head size), packed.
    keys: Aligned<f32>,
    /// (heads, head size, tokens), packed.
    values: Aligned<f32>,
    tokens: usize,
    heads: usize,
    size: usize,
}

impl Memory {
    /// One for each prompt. `states` is (prompts, tokens, 2 * channels), keys before values; of each prompt the first
    /// `real` tokens are kept.
    ///
    /// # Errors
    /// Shapes that do not fit, or a tensor that is not f32 on the CPU.
    pub fn new(states: &Tensor, real: &[usize], heads: usize) -> Result<Vec<Self>> {
        let (prompts, tokens, width) = states.dims3()?;
        let fits = prompts == real.len() && real.iter().all(|&real| (1..=tokens).contains(&real));
        if !fits || heads == 0 || width == 0 || !width.is_multiple_of(2 * heads) {
            candle_core::bail!("keys and values {:?} for {heads} heads and the lengths {real:?}", states.dims());
        }
        let states = states.contiguous()?;
        let states = numbers(&states)?;
        let of = |(states, &real): (&[f32], &usize)| Self::pack(&states[..real * width], real, heads, width / 2);
        Ok(states.chunks_exact(tokens * width).zip(real).map(of).collect())
    }

    fn pack(states: &[f32], tokens: usize, heads: usize, channels: usize) -> Self {
        let size = channels / heads;
        let row = |token: usize, from: usize| &states[token * 2 * channels + from..][..size];
        let mut keys = Aligned::zeros(heads * packed_length::<f32>(tokens, size));
        keys.par_chunks_mut(packed_length::<f32>(tokens, size)).enumerate().for_each(|(head, keys)| {
            for (panel, keys) in keys.chunks_exact_mut(panel_length::<f32>(size)).enumerate() {
                let (first, filled) = (panel * PANEL, PANEL.min(tokens - panel * PANEL));
                pack(keys, filled, |token| row(first + token, head * size), |number| number);
            }
        });
        let mut values = Aligned::zeros(heads * packed_length::<f32>(size, tokens));
        values.par_chunks_mut(packed_length::<f32>(size, tokens)).enumerate().for_each(|(head, values)| {
            for (panel, values) in values.chunks_exact_mut(panel_length::<f32>(tokens)).enumerate() {
                for (token, line) in values.chunks_exact_mut(PANEL).enumerate() {
                    let row = &row(token, channels + head * size)[panel * PANEL..];
                    let width = row.len().min(PANEL);
                    line[..width].copy_from_slice(&row[..width]);
                }
            }
        });
        Self { keys, values, tokens, heads, size }
    }

    /// Numbers of working memory that [`attend`] needs for `queries` of this prompt.
    #[must_use]
    pub const fn work(&self, queries: usize) -> usize {
        self.heads * queries * (self.tokens + self.size)
    }

    const fn channels(&self) -> usize {
        self.heads * self.size
    }

    /// One head: its keys and its values.
    fn head(&self, head: usize) -> (Panels<'_, f32>, Panels<'_, f32>) {
        let keys = packed_length::<f32>(self.tokens, self.size);
        let values = packed_length::<f32>(self.size, self.tokens);
        (
            Panels { numbers: &self.keys[head * keys..][..keys], inner: self.size, out: self.tokens },
            Panels { numbers: &self.values[head * values..][..values], inner: self.tokens, out: self.size },
        )
    }
}

/// softmax(q k^T / sqrt(head size)) v for each head, where every prompt's queries see its own memory: q and out are
/// (prompts, queries, channels), and `prompts` says whose memory is whose. `work` is overwritten; each prompt takes as
/// much of it as the one that needs most ([`Memory::work`]).
///
/// # Errors
/// Lengths that do not fit.
pub fn attend(memories: &[Memory], prompts: &[usize], q: &[f32], work: &mut [f32], out: &mut [f32]) -> Result<()> {
    let fits = |memory: &Memory| {
        let queries = q.len() / (prompts.len() * memory.channels());
        q.len() == prompts.len() * queries * memory.channels() && work.len() >= prompts.len() * memory.work(queries)
    };
    if prompts.is_empty() || q.len() != out.len() || !prompts.iter().all(|&at| memories.get(at).is_some_and(fits)) {
        candle_core::bail!("{} queries for {} prompts, {} numbers of memory", q.len(), prompts.len(), work.len());
    }
    each_prompt(memories, prompts, q, work, out);
    Ok(())
}

/// Halves the prompts among threads.
fn each_prompt(memories: &[Memory], prompts: &[usize], q: &[f32], work: &mut [f32], out: &mut [f32]) {
    if let [prompt] = prompts {
        let memory = &memories[*prompt];
        let channels = memory.channels();
        for (q, out) in q.chunks(ROWS * channels).zip(out.chunks_mut(ROWS * channels)) {
            let rows = Rows { values: q, stride: channels, count: q.len() / channels };
            let work = &mut work[..memory.work(rows.count)];
            each_head(memory, 0..memory.heads, rows, work, Columns::of(out, channels));
        }
        return;
    }
    let half = prompts.len() / 2;
    let (left, right) = prompts.split_at(half);
    let (left_q, right_q) = q.split_at(q.len() / prompts.len() * half);
    let (left_work, right_work) = work.split_at_mut(work.len() / prompts.len() * half);
    let (left_out, right_out) = out.split_at_mut(out.len() / prompts.len() * half);
    rayon::join(
        || each_prompt(memories, left, left_q, left_work, left_out),
        || each_prompt(memories, right, right_q, right_work, right_out),
    );
}

/// Halves the heads among threads until a task is not worth halving. `out` are the heads' columns.
fn each_head(memory: &Memory, heads: std::ops::Range<usize>, q: Rows<'_, f32>, work: &mut [f32], out: Columns<'_>) {
    let products = 2 * q.count * memory.tokens * memory.size;
    if heads.len() > 1 && heads.len() * products > TASK {
        let half = heads.len() / 2;
        let (left, right) = (heads.start..heads.start + half, heads.start + half..heads.end);
        let (left_work, right_work) = work.split_at_mut(work.len() / heads.len() * half);
        let (left_out, right_out) = out.split_at(half * memory.size);
        rayon::join(
            || each_head(memory, left, q, left_work, left_out),
            || each_head(memory, right, q, right_work, right_out),
        );
        return;
    }
    let (mut out, first) = (out, heads.start);
    for head in heads {
        let (keys, values) = memory.head(head);
        let (scores, rest) = work.split_at_mut(q.count * memory.tokens);
        let block = &mut rest[..q.count * memory.size];
        let q = Rows { values: &q.values[head * memory.size..], ..q };
        let target = Target::Sums { out: &mut *scores, stride: memory.tokens, start: Start::Fresh };
        multiply(q, keys, &[], target);
        let scale = (memory.size as f32).powf(-0.5);
        for score in scores.iter_mut() {
            *score *= scale;
        }
        softmax(scores, memory.tokens, memory.tokens);
        let scores = Rows { values: scores, stride: memory.tokens, count: q.count };
        let target = Target::Sums { out: &mut *block, stride: memory.size, start: Start::Fresh };
        multiply(scores, values, &[], target);
        for (out, block) in out.rows().iter_mut().zip(block.chunks_exact(memory.size)) {
            out[(head - first) * memory.size..][..memory.size].copy_from_slice(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::kernels::tests::{assert_close, random};
    use crate::kernels::{AttentionShape, attention};

    #[test]
    fn equals_attention_on_tensors_over_odd_sizes() {
        for (prompts, queries, tokens, heads, size) in [
            (1, 1, 1, 1, 1),
            (2, 3, 5, 2, 4),
            (1, 1, 65, 4, 32),
            (3, 7, 7, 1, 33),
            (2, 50, 70, 3, 40),
            (1, 2, 600, 12, 64),
        ] {
            let channels = heads * size;
            let (q, states) = (random(&[prompts, queries, channels], 1), random(&[prompts, tokens, 2 * channels], 2));
            let real: Vec<usize> = (0..prompts).map(|prompt| (tokens - prompt).max(1)).collect();
            let memories = Memory::new(&states, &real, heads).unwrap();
            // In another order than they were made in.
            let order: Vec<usize> = (0..prompts).rev().collect();
            let mut work = vec![f32::NAN; prompts * memories[0].work(queries)];
            let mut out = vec![f32::NAN; prompts * queries * channels];
            attend(&memories, &order, &numbers(&q).unwrap(), &mut work, &mut out).unwrap();

            let index = Tensor::new(order.iter().map(|&i| u32::try_from(i).unwrap()).collect::<Vec<_>>(), &Device::Cpu);
            let states = states.index_select(&index.unwrap(), 0).unwrap();
            let (k, v) = (states.narrow(2, 0, channels).unwrap(), states.narrow(2, channels, channels).unwrap());
            let lengths: Vec<usize> = order.iter().map(|&prompt| real[prompt]).collect();
            let shape = AttentionShape { heads, real_keys: Some(&lengths), causal: None };
            let expected = attention(&q, &k.contiguous().unwrap(), &v.contiguous().unwrap(), shape).unwrap();
            assert_close(&Tensor::from_vec(out, q.shape(), &Device::Cpu).unwrap(), &expected, 1e-5);
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let states = random(&[1, 3, 16], 1);
        assert!(Memory::new(&states, &[4], 2).is_err() && Memory::new(&states, &[3], 3).is_err());
        let memories = Memory::new(&states, &[3], 2).unwrap();
        let mut work = vec![0.0; memories[0].work(1)];
        assert!(attend(&memories, &[1], &[0.0; 8], &mut work, &mut [0.0; 8]).is_err(), "there is one prompt");
        assert!(attend(&memories, &[0], &[0.0; 16], &mut work, &mut [0.0; 16]).is_err(), "memory for one query");
    }
}
