//! What is done to each number of a tensor: bias, GELU, residual, and one tensor added to each item of a batch.

use candle_core::{Result, Tensor};

use super::launch::{Call, expect};
use crate::kernels::After;
use crate::kernels::catalogue::Kernel;

/// Numbers that one block takes: four for each of its threads.
const NUMBERS: usize = 1024;
const THREADS: u32 = 256;

/// Adds a bias to each row of x, (..., channels), and does what comes after, all in place.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn finish(x: &Tensor, bias: Option<&Tensor>, after: After<'_>) -> Result<()> {
    let channels = x.dims().last().copied().unwrap_or(0);
    bias.map(|bias| expect("bias", bias, &[channels])).transpose()?;
    let dtype = x.dtype();
    let call = match (after, bias) {
        (After::Nothing, None) => return Ok(()),
        (After::Nothing, Some(bias)) => Call::new(Kernel::Bias, x).write(x, dtype).read(bias, dtype),
        (After::Gelu, bias) => Call::new(Kernel::BiasGelu, x).write(x, dtype).read_or_null(bias, dtype),
        (After::AddTo(residual), bias) => {
            expect("residual", residual, x.dims())?;
            Call::new(Kernel::BiasResidual, x).write(x, dtype).read_or_null(bias, dtype).read(residual, dtype)
        }
    };
    let count = x.elem_count();
    // SAFETY: x and residual have count numbers, which are rows of `channels`; bias has channels.
    unsafe { call.long(count).int(channels).launch([count.div_ceil(NUMBERS), 1, 1], [THREADS, 1]) }
}

/// [`kernels::gelu`](crate::kernels::gelu()) on a GPU.
///
/// # Errors
/// A type that has no kernel, a tensor that is not contiguous, or a device failure.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    let out = x.copy()?;
    finish(&out, None, After::Gelu)?;
    Ok(out)
}

/// [`kernels::add_to_each`](crate::kernels::add_to_each) on a GPU.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn add_to_each(x: &Tensor, addend: &Tensor) -> Result<Tensor> {
    let item = addend.elem_count();
    if item == 0 || !x.elem_count().is_multiple_of(item) {
        candle_core::bail!("{:?} cannot be added to each item of {:?}", addend.dims(), x.dims());
    }
    let out = x.copy()?;
    let (count, dtype) = (x.elem_count(), x.dtype());
    // One item is one long row.
    let call = Call::new(Kernel::Bias, &out).write(&out, dtype).read(addend, dtype).long(count).int(item);
    // SAFETY: out has count numbers, a multiple of the addend's.
    unsafe { call.launch([count.div_ceil(NUMBERS), 1, 1], [THREADS, 1]) }?;
    Ok(out)
}
