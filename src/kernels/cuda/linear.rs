//! Linear layers: the product is cuBLAS's, what comes after it is one kernel, or part of the normalisation that follows.

use candle_core::{Result, Tensor};

use super::elementwise::finish;
use super::layer_norm::{layer_norm, sum_norm};
use crate::kernels::weight::Form;
use crate::kernels::{After, Layer, Norm, Weight};

/// [`kernels::linear`](crate::kernels::linear()) on a GPU.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn linear(x: &Tensor, layer: Layer<'_>, after: After<'_>) -> Result<Tensor> {
    let out = product(x, layer.weight)?;
    finish(&out, layer.bias, after)?;
    Ok(out)
}

/// [`kernels::norm_linear`](crate::kernels::norm_linear) on a GPU.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn norm_linear(x: &Tensor, norm: Norm<'_>, layer: Layer<'_>) -> Result<Tensor> {
    linear(&layer_norm(x, norm)?, layer, After::Nothing)
}

/// [`kernels::linear_norm`](crate::kernels::linear_norm()) on a GPU: bias, residual and normalisation are one kernel.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn linear_norm(x: &Tensor, layer: Layer<'_>, residual: &Tensor, norm: Norm<'_>) -> Result<Tensor> {
    sum_norm(&product(x, layer.weight)?, layer.bias, Some(residual), norm)
}

/// [`kernels::mlp`](crate::kernels::mlp()) on a GPU.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn mlp(x: &Tensor, norm: Norm<'_>, first: Layer<'_>, second: Layer<'_>) -> Result<Tensor> {
    let hidden = linear(&layer_norm(x, norm)?, first, After::Gelu)?;
    linear(&hidden, second, After::AddTo(x))
}

/// x @ weight^T: (..., in) to (..., out).
pub(super) fn product(x: &Tensor, weight: &Weight) -> Result<Tensor> {
    let Form::Plain(weight) = &weight.0 else { candle_core::bail!("a weight that is packed for a CPU, on a GPU") };
    let (out, inner) = weight.dims2()?;
    let mut shape = x.dims().to_vec();
    match shape.last_mut() {
        Some(last) if *last == inner && x.is_contiguous() => *last = out,
        _ => candle_core::bail!("a linear layer of {inner} contiguous inputs was given {:?}", x.dims()),
    }
    x.reshape(((), inner))?.matmul(&weight.t()?)?.reshape(shape)
}
