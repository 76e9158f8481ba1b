//! A convolution as a matrix product: one kernel puts the pixels under each position side by side.

use candle_core::{Result, Tensor};

use super::launch::{Call, empty};
use super::linear::linear;
use crate::kernels::catalogue::Kernel;
use crate::kernels::{After, Layer, Order, Window};

/// Numbers that one block copies: four for each of its threads.
const NUMBERS: usize = 1024;
const THREADS: u32 = 256;

/// [`kernels::convolution`](crate::kernels::convolution()) on a GPU.
///
/// # Errors
/// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
pub fn convolution(x: &Tensor, order: Order, window: Window, layer: Layer<'_>) -> Result<Tensor> {
    linear(&patches(x, order, window)?, layer, After::Nothing)
}

/// (batch, rows, columns, numbers under the window): plane by plane for [`Order::Planes`], channels last otherwise; zeros
/// where the window looks past the edge.
///
/// # Errors
/// A window that does not fit, a tensor that is not contiguous, or a device failure.
pub fn patches(x: &Tensor, order: Order, window: Window) -> Result<Tensor> {
    let (batch, a, b, c) = x.dims4()?;
    // Planes of pixels of one number, or one plane of pixels of all channels.
    let (planes, height, width, pixel) = if order == Order::Planes { (a, b, c, 1) } else { (1, a, b, c) };
    let Window { kernel, stride, padding } = window;
    if kernel == 0 || stride == 0 {
        candle_core::bail!("{window:?} cannot be moved over an image");
    }
    let (rows, columns) = (window.positions(height), window.positions(width));
    let dtype = x.dtype();
    let out = empty((batch, rows, columns, planes * kernel * kernel * pixel), dtype, x.device())?;
    let count = out.elem_count();
    let call = Call::new(Kernel::Patches, x)
        .read(x, dtype)
        .write(&out, dtype)
        .long(count)
        .int(planes)
        .int(height)
        .int(width)
        .int(pixel)
        .int(kernel)
        .int(stride)
        .int(padding)
        .int(rows)
        .int(columns);
    // SAFETY: x has batch x planes x height x width x pixel numbers; out has count, batch x rows x columns x planes x
    // kernel x kernel x pixel, where rows and columns are the positions of the window along the sides.
    unsafe { call.launch([count.div_ceil(NUMBERS), 1, 1], [THREADS, 1]) }?;
    Ok(out)
}
