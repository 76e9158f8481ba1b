//! Attention between channels, in three kernels: sums over parts of the tokens, their softmax, and the values' product.

use candle_core::{DType, Result, Tensor};

use super::inverse_root;
use super::launch::{Call, empty};
use crate::kernels::catalogue::Kernel;

/// Channels of a group, at most.
const MOST: usize = 64;
/// Tokens that one block sums up, unless there are more than [`SPLITS`] blocks' worth of them.
const TOKENS_OF_A_SUM: usize = 256;
const SPLITS: usize = 64;
/// Tokens whose output one block computes.
const TOKENS_OF_AN_OUTPUT: usize = 64;
/// Rows of weights that one block normalises: a warp each.
const ROWS: usize = 8;
const THREADS: u32 = 256;

/// [`kernels::channel_attention`](crate::kernels::channel_attention()) on a GPU. Groups have at most 64 channels.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn channel_attention(qkv: &Tensor, groups: usize) -> Result<Tensor> {
    let (batch, tokens, all) = qkv.dims3()?;
    if groups == 0 || !all.is_multiple_of(3 * groups) || all / 3 / groups > MOST {
        candle_core::bail!("no CUDA kernel for {groups} groups over {:?}", qkv.dims());
    }
    let (channels, dtype, device) = (all / 3, qkv.dtype(), qkv.device());
    let (size, splits) = (channels / groups, tokens.div_ceil(TOKENS_OF_A_SUM).min(SPLITS));
    let partial = empty((batch, groups, splits, size, size), DType::F32, device)?;
    let weights = empty((batch, groups, size, size), DType::F32, device)?;
    let out = empty((batch, tokens, channels), dtype, device)?;
    let logits = Call::new(Kernel::ChannelAttentionLogits, qkv)
        .read(qkv, dtype)
        .write(&partial, DType::F32)
        .int(tokens)
        .int(channels)
        .int(groups)
        .float(inverse_root(tokens));
    // SAFETY: qkv has batch x tokens x 3 channels numbers, partial batch x groups x splits x size x size; the groups
    // divide the channels into `size` each, at most 64.
    unsafe { logits.launch([splits, groups, batch], [THREADS, 1]) }?;
    let rows = batch * groups * size;
    let softmax = Call::new(Kernel::ChannelAttentionSoftmax, &partial)
        .read(&partial, DType::F32)
        .write(&weights, DType::F32)
        .int(rows)
        .int(splits)
        .int(size);
    // SAFETY: weights has rows x size numbers, partial `splits` times as many.
    unsafe { softmax.launch([rows.div_ceil(ROWS), 1, 1], [THREADS, 1]) }?;
    let apply = Call::new(Kernel::ChannelAttentionApply, qkv)
        .read(qkv, dtype)
        .read(&weights, DType::F32)
        .write(&out, dtype)
        .int(tokens)
        .int(channels)
        .int(groups);
    // SAFETY: qkv has batch x tokens x 3 channels numbers, weights batch x groups x size x size, out batch x tokens x
    // channels.
    unsafe { apply.launch([tokens.div_ceil(TOKENS_OF_AN_OUTPUT), groups, batch], [THREADS, 1]) }?;
    Ok(out)
}
