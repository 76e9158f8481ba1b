//! Multi-head attention over rows of different lengths, for prompts and answers.

use candle_core::{DType, Device, Result, Tensor};
use rayon::prelude::*;

use super::window_attention::attend;
use super::{Matrix, numbers};

/// What attends to what.
#[derive(Debug, Clone, Copy)]
pub struct AttentionShape<'a> {
    /// Heads; each has channels / heads channels.
    pub heads: usize,
    /// For each batch row, how many of its keys are real: the rest are padding at the end and never looked at. `None`: all.
    pub real_keys: Option<&'a [usize]>,
    /// Query i sees keys up to `causal + i` only; `None`: all.
    pub causal: Option<usize>,
}

/// softmax(q k^T / sqrt(head size)) v for each head; q is (batch, queries, channels), k and v are (batch, keys, channels), the
/// result is shaped and typed like q. Logits and softmax are in f32.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, shape: AttentionShape<'_>) -> Result<Tensor> {
    let batch = q.dim(0)?;
    if let Some(real) = shape.real_keys
        && (real.len() != batch || real.iter().any(|&keys| keys == 0 || keys > k.dim(1).unwrap_or(0)))
    {
        candle_core::bail!("attention over {:?} keys with the lengths {real:?}", k.dims());
    }
    #[cfg(feature = "cuda")]
    if q.device().is_cuda() {
        return super::cuda::attention(q, k, v, shape);
    }
    if super::is_fast(q) { fast(q, k, v, shape) } else { reference(q, k, v, shape) }
}

fn reference(q: &Tensor, k: &Tensor, v: &Tensor, shape: AttentionShape<'_>) -> Result<Tensor> {
    let (batch, queries, channels) = q.dims3()?;
    let keys = k.dim(1)?;
    let size = channels / shape.heads;
    let split = |x: &Tensor, tokens: usize| -> Result<Tensor> {
        x.to_dtype(DType::F32)?.reshape((batch, tokens, shape.heads, size))?.transpose(1, 2)?.contiguous() // (batch, heads, tokens, size)
    };
    let (q_heads, k_heads, v_heads) = (split(q, queries)?, split(k, keys)?, split(v, keys)?);
    let logits = (q_heads * (size as f64).powf(-0.5))?.matmul(&k_heads.t()?)?; // (batch, heads, queries, keys)
    let mask: Vec<f32> = (0..batch)
        .flat_map(|row| {
            let real = shape.real_keys.map_or(keys, |real| real[row]);
            (0..queries).flat_map(move |query| {
                let seen = shape.causal.map_or(real, |causal| real.min(causal + query + 1));
                (0..keys).map(move |key| if key < seen { 0.0 } else { f32::NEG_INFINITY })
            })
        })
        .collect();
    let mask = Tensor::from_vec(mask, (batch, 1, queries, keys), q.device())?;
    let weights = candle_nn::ops::softmax_last_dim(&logits.broadcast_add(&mask)?)?;
    weights.matmul(&v_heads)?.transpose(1, 2)?.reshape((batch, queries, channels))?.to_dtype(q.dtype())
}

fn fast(q: &Tensor, k: &Tensor, v: &Tensor, shape: AttentionShape<'_>) -> Result<Tensor> {
    let (batch, queries, channels) = q.dims3()?;
    let (_, keys, _) = k.dims3()?;
    if k.dims() != [batch, keys, channels] || v.dims() != k.dims() || channels % shape.heads != 0 {
        candle_core::bail!("attention of {:?} to {:?} and {:?}", q.dims(), k.dims(), v.dims());
    }
    let (q, k, v) = (q.contiguous()?, k.contiguous()?, v.contiguous()?);
    let (q, k, v) = (numbers(&q)?, numbers(&k)?, numbers(&v)?);
    let (q, k, v) = (&*q, &*k, &*v);
    let size = channels / shape.heads;
    // Heads that are worth a task: one answer's next token is not worth waking anybody.
    let together = TASK.div_ceil((queries * keys * size).max(1));
    // Each (row, head) writes its own block; blocks are put side by side afterwards.
    let blocks: Vec<Vec<f32>> = (0..batch * shape.heads)
        .into_par_iter()
        .with_min_len(together)
        .map(|index| {
            let (row, head) = (index / shape.heads, index % shape.heads);
            let real = shape.real_keys.map_or(keys, |real| real[row]);
            let from = |x: &'_ [f32], tokens: usize| -> std::ops::Range<usize> {
                let start = row * tokens * channels + head * size;
                start.min(x.len())..x.len()
            };
            if shape.causal.is_none() {
                let mut block = vec![0.0; queries * size];
                let (q, k, v) = (&q[from(q, queries)], &k[from(k, keys)], &v[from(v, keys)]);
                let token = |token: usize, part: usize| &[q, k, v][part][token * channels..][..size];
                attend((&mut block, size), token, Some, (queries, real), size);
                return block;
            }
            let q = Matrix::rows(&q[from(q, queries)], channels);
            let k = Matrix::rows(&k[from(k, keys)], channels);
            let v = Matrix::rows(&v[from(v, keys)], channels);
            one_head(q, k, v, (queries, real, size), shape.causal)
        })
        .collect();
    let mut out = vec![0.0; batch * queries * channels];
    out.par_chunks_mut(channels.max(1)).enumerate().for_each(|(token, out)| {
        let (row, query) = (token / queries, token % queries);
        for (head, out) in out.chunks_exact_mut(size).enumerate() {
            out.copy_from_slice(&blocks[row * shape.heads + head][query * size..(query + 1) * size]);
        }
    });
    Tensor::from_vec(out, (batch, queries, channels), &Device::Cpu)
}

/// Products of queries and keys that are worth a task of their own: some ten microseconds.
const TASK: usize = 1 << 18;

/// One head of one row: (queries, size).
fn one_head(
    q: Matrix<'_>,
    k: Matrix<'_>,
    v: Matrix<'_>,
    (queries, keys, size): (usize, usize, usize),
    causal: Option<usize>,
) -> Vec<f32> {
    let mut scores = vec![0.0; queries * keys];
    let scale = (size as f32).powf(-0.5);
    super::product((queries, size, keys), q, k.transposed(), (&mut scores, keys), (false, scale));
    for (query, scores) in scores.chunks_exact_mut(keys.max(1)).enumerate() {
        let seen = causal.map_or(keys, |causal| keys.min(causal + query + 1));
        super::arithmetic::softmax(scores, keys.max(1), seen);
        scores[seen..].fill(0.0);
    }
    let mut out = vec![0.0; queries * size];
    super::product((queries, keys, size), Matrix::rows(&scores, keys), v, (&mut out, size), (false, 1.0));
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_over_odd_sizes() {
        for (batch, queries, keys, heads, size) in
            [(1, 1, 1, 1, 1), (2, 3, 5, 2, 4), (1, 1, 65, 4, 32), (3, 7, 7, 1, 33), (2, 17, 31, 3, 8)]
        {
            let channels = heads * size;
            let (q, k, v) = (
                random(&[batch, queries, channels], 1),
                random(&[batch, keys, channels], 2),
                random(&[batch, keys, channels], 3),
            );
            let lengths: Vec<usize> = (0..batch).map(|row| (keys - row).max(1)).collect();
            for real_keys in [None, Some(&lengths[..])] {
                let shape = AttentionShape { heads, real_keys, causal: None };
                assert_close(&attention(&q, &k, &v, shape).unwrap(), &reference(&q, &k, &v, shape).unwrap(), 1e-5);
            }
        }
    }

    #[test]
    fn a_causal_query_sees_the_past_only() {
        let (q, k, v) = (random(&[2, 3, 8], 1), random(&[2, 5, 8], 2), random(&[2, 5, 8], 3));
        let shape = AttentionShape { heads: 2, real_keys: None, causal: Some(2) };
        assert_close(&attention(&q, &k, &v, shape).unwrap(), &reference(&q, &k, &v, shape).unwrap(), 1e-5);
    }

    #[test]
    fn padding_does_not_exist_for_a_query() {
        let (q, k, v) = (random(&[1, 2, 8], 1), random(&[1, 6, 8], 2), random(&[1, 6, 8], 3));
        let padded = attention(&q, &k, &v, AttentionShape { heads: 2, real_keys: Some(&[4]), causal: None }).unwrap();
        let (short_k, short_v) = (k.narrow(1, 0, 4).unwrap(), v.narrow(1, 0, 4).unwrap());
        let alone =
            attention(&q, &short_k, &short_v, AttentionShape { heads: 2, real_keys: None, causal: None }).unwrap();
        assert_close(&padded, &alone, 0.0);
        assert!(attention(&q, &k, &v, AttentionShape { heads: 2, real_keys: Some(&[7]), causal: None }).is_err());
    }
}
