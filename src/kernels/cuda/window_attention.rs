//! Attention inside square windows: one block for each window and head.

use candle_core::{Result, Tensor};

use super::inverse_root;
use super::launch::{Call, empty, expect};
use crate::kernels::catalogue::Kernel;

/// Threads of a block.
const THREADS: u32 = 160;
/// Channels of a head, at most: more registers would leave room for too few blocks.
const MOST_OF_A_HEAD: usize = 64;

/// [`kernels::window_attention`](crate::kernels::window_attention()) on a GPU. Heads have at most 64 channels.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn window_attention(qkv: &Tensor, padding: &Tensor, window: usize, heads: usize) -> Result<Tensor> {
    let (batch, height, width, all) = qkv.dims4()?;
    expect("padding", padding, &[all])?;
    if window == 0 || heads == 0 || !all.is_multiple_of(3 * heads) || all / 3 / heads > MOST_OF_A_HEAD {
        candle_core::bail!("no CUDA kernel for windows of {window} with {heads} heads over {:?}", qkv.dims());
    }
    let (channels, dtype) = (all / 3, qkv.dtype());
    let out = empty((batch, height, width, channels), dtype, qkv.device())?;
    let call = Call::new(Kernel::WindowAttention, qkv)
        .read(qkv, dtype)
        .read(padding, dtype)
        .write(&out, dtype)
        .int(height)
        .int(width)
        .int(channels)
        .int(heads)
        .int(window)
        .float(inverse_root(channels / heads));
    let grid = [height.div_ceil(window) * width.div_ceil(window), heads, batch];
    // SAFETY: qkv has batch x height x width x 3 channels numbers, padding 3 channels, out batch x height x width x
    // channels; heads divide the channels into at most 64 each.
    unsafe { call.launch(grid, [THREADS, 1]) }?;
    Ok(out)
}
