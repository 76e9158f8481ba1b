//! Layer normalisation, of a tensor or of a sum that is never stored.

use candle_core::{DType, Result, Tensor};

use super::launch::{Call, empty, expect};
use crate::kernels::Norm;
use crate::kernels::catalogue::Kernel;

/// Rows that one block normalises: a warp each.
const ROWS: usize = 4;
const THREADS: u32 = 128;

/// [`kernels::layer_norm`](crate::kernels::layer_norm()) on a GPU.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn layer_norm(x: &Tensor, norm: Norm<'_>) -> Result<Tensor> {
    sum_norm(x, None, None, norm)
}

/// The normalised rows of x + added + residual: x and residual are (..., channels), added, such as a bias, is (channels).
/// The sum is rounded to the type of x before it is normalised.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn sum_norm(x: &Tensor, added: Option<&Tensor>, residual: Option<&Tensor>, norm: Norm<'_>) -> Result<Tensor> {
    let channels = x.dims().last().copied().unwrap_or(0);
    expect("weight", norm.weight, &[channels])?;
    expect("bias", norm.bias, &[channels])?;
    added.map(|added| expect("added", added, &[channels])).transpose()?;
    residual.map(|residual| expect("residual", residual, x.dims())).transpose()?;
    let (dtype, rows) = (x.dtype(), x.elem_count() / channels.max(1));
    let out = empty(x.shape(), dtype, x.device())?;
    let call = Call::new(Kernel::LayerNorm, x)
        .read(x, dtype)
        .read_or_null(added, dtype)
        .read_or_null(residual, dtype)
        .read_or_null(None, dtype)
        .read(norm.weight, DType::F32)
        .read(norm.bias, DType::F32)
        .write(&out, dtype)
        .int(rows)
        .int(channels)
        .float(norm.epsilon);
    // SAFETY: x, residual and out have rows x channels numbers, added, weight and bias channels; the sum goes nowhere.
    unsafe { call.launch([rows.div_ceil(ROWS), 1, 1], [THREADS, 1]) }?;
    Ok(out)
}
