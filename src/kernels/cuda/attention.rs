//! Multi-head attention over rows of different lengths, which are given or lie on the device.

use candle_core::{DType, Result, Tensor};

use super::inverse_root;
use super::launch::{Call, empty, expect, integers};
use super::tokens::Tokens;
use crate::kernels::AttentionShape;
use crate::kernels::catalogue::Kernel;

/// Up to so many queries a block takes one each and shares out its keys.
const FEW: usize = 8;
/// Queries of a block where there are more.
const QUERIES: usize = 64;
/// Channels of a head, at most: what registers and shared memory are laid out for.
const MOST_OF_A_HEAD: usize = 128;
const THREADS: u32 = 128;

/// How far rows see, in numbers that lie on the device and so may change between replays of a graph.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lengths<'a> {
    /// i32 (batch): real keys of each row, the rest is never looked at. `None`: all keys are real.
    pub real_keys: Option<&'a Tensor>,
    /// i32 (1): query i sees keys up to this number + i only. `None`: all.
    pub causal: Option<&'a Tensor>,
}

/// [`kernels::attention`](crate::kernels::attention()) on a GPU. q, k and v may be parts of one tensor (batch, tokens, 3
/// channels), and k and v the first tokens of longer caches. Heads have at most 128 channels.
///
/// # Errors
/// Shapes, types or layouts that do not fit, or a device failure.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, shape: AttentionShape<'_>) -> Result<Tensor> {
    let keys = k.dim(1)?;
    let real_keys = shape.real_keys.filter(|real| real.iter().any(|&real| real != keys));
    let real_keys = real_keys.map(|real| integers(real, q.device())).transpose()?;
    // The first query sees least; when it sees everything, as the one query of a decode step does, nothing is hidden.
    let causal = shape.causal.filter(|causal| causal + 1 < keys);
    let causal = causal.map(|causal| integers(&[causal], q.device())).transpose()?;
    attention_with(q, k, v, shape.heads, Lengths { real_keys: real_keys.as_ref(), causal: causal.as_ref() })
}

/// As [`attention`], with lengths from the device.
///
/// # Errors
/// Shapes, types or layouts that do not fit, or a device failure.
pub fn attention_with(q: &Tensor, k: &Tensor, v: &Tensor, heads: usize, lengths: Lengths<'_>) -> Result<Tensor> {
    let out = empty(q.shape(), q.dtype(), q.device())?;
    attention_into(&out, q, k, v, heads, lengths)?;
    Ok(out)
}

/// As [`attention_with`], into a contiguous tensor shaped like q. Keys from `k.dim(1)` on are never
/// looked at; between replays of a graph that is the capacity of the cache, and `lengths` says how much of it is filled.
///
/// # Errors
/// Shapes, types or layouts that do not fit, or a device failure.
pub fn attention_into(
    out: &Tensor,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    heads: usize,
    lengths: Lengths<'_>,
) -> Result<()> {
    let (batch, queries, channels) = q.dims3()?;
    let keys = k.dim(1)?;
    expect("k", k, &[batch, keys, channels])?;
    expect("v", v, &[batch, keys, channels])?;
    expect("out", out, &[batch, queries, channels])?;
    lengths.real_keys.map(|real| expect("real_keys", real, &[batch])).transpose()?;
    lengths.causal.map(|causal| expect("causal", causal, &[1])).transpose()?;
    if heads == 0 || !channels.is_multiple_of(heads) || channels / heads > MOST_OF_A_HEAD {
        candle_core::bail!("no CUDA kernel for {heads} heads of {channels} channels");
    }
    let (q_rows, k_rows, v_rows) = (Tokens::of("q", q)?, Tokens::of("k", k)?, Tokens::of("v", v)?);
    if k_rows != v_rows || q_rows.capacity != queries {
        candle_core::bail!("attention of {q_rows:?} to keys {k_rows:?} and values {v_rows:?}, which must be alike");
    }
    let (dtype, size) = (q.dtype(), channels / heads);
    let few = queries <= FEW;
    let call = Call::new(if few { Kernel::AttentionFew } else { Kernel::Attention }, q)
        .read_strided(q, dtype)
        .read_strided(k, dtype)
        .read_strided(v, dtype)
        .write(out, dtype)
        .read_or_null(lengths.real_keys, DType::I32)
        .read_or_null(lengths.causal, DType::I32)
        .int(queries)
        .int(keys)
        .int(k_rows.capacity)
        .int(q_rows.stride)
        .int(k_rows.stride)
        .int(heads)
        .int(size)
        .float(inverse_root(size));
    let blocks = if few { queries } else { queries.div_ceil(QUERIES) };
    // SAFETY: q has batch x queries tokens q_stride apart, k and v batch x capacity tokens kv_stride apart, of which the
    // first `keys` of each row are looked at, and keys <= capacity; each token has heads x size numbers, size at most
    // 128; out has batch x queries x channels numbers; real_keys has batch numbers and causal one. Lengths beyond `keys`
    // are cut to it.
    unsafe { call.launch([blocks, heads, batch], [THREADS, 1]) }
}
