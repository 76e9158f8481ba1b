//! The depthwise 3x3 convolution with bias, added to its input.

use candle_core::{DType, Result, Tensor};

use super::launch::{Call, empty, expect};
use crate::kernels::catalogue::Kernel;

/// Rows, columns and channels that one thread computes, and threads of a block.
const ROWS: usize = 8;
const COLUMNS: usize = 2;
const CHANNELS: usize = 4;
const THREADS: u32 = 128;

/// [`kernels::depthwise_residual`](crate::kernels::depthwise_residual) on a GPU.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn depthwise_residual(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (batch, height, width, channels) = x.dims4()?;
    expect("weight", weight, &[9, channels])?;
    expect("bias", bias, &[channels])?;
    let out = empty(x.shape(), x.dtype(), x.device())?;
    let call = Call::new(Kernel::Depthwise, x)
        .read(x, x.dtype())
        .read(weight, DType::F32)
        .read(bias, DType::F32)
        .write(&out, x.dtype())
        .int(height)
        .int(width)
        .int(channels);
    let pieces = width.div_ceil(COLUMNS) * channels.div_ceil(CHANNELS);
    let grid = [pieces.div_ceil(THREADS as usize), height.div_ceil(ROWS), batch];
    // SAFETY: x and out have batch x height x width x channels numbers, weight 9 x channels, bias channels.
    unsafe { call.launch(grid, [THREADS, 1]) }?;
    Ok(out)
}
