//! The grid of an image with its positions, and its mean in front.

use candle_core::{Result, Tensor};

use super::launch::{Call, empty};
use crate::kernels::catalogue::Kernel;

/// Channels that one block takes, and threads that share out the tokens of each.
const CHANNELS: u32 = 32;
const TOKENS: u32 = 8;

/// [`kernels::image_tokens`](crate::kernels::image_tokens()) on a GPU.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn image_tokens(x: &Tensor, position: &Tensor) -> Result<Tensor> {
    let (batch, tokens, channels) = x.dims3()?;
    if position.elem_count() != tokens * channels {
        candle_core::bail!("positions {:?} for tokens {:?}", position.dims(), x.dims());
    }
    let dtype = x.dtype();
    let out = empty((batch, 1 + tokens, channels), dtype, x.device())?;
    let call = Call::new(Kernel::ImageTokens, x)
        .read(x, dtype)
        .read(position, dtype)
        .write(&out, dtype)
        .int(tokens)
        .int(channels);
    // SAFETY: x has batch x tokens x channels numbers, position tokens x channels, out batch x (1 + tokens) x channels.
    unsafe { call.launch([channels.div_ceil(CHANNELS as usize), batch, 1], [CHANNELS, TOKENS]) }?;
    Ok(out)
}
