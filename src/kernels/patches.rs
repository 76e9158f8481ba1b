//! The pixels under each position of a convolution, side by side, so that the convolution becomes one matrix product.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

/// Where a convolution looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Side of the square kernel.
    pub kernel: usize,
    /// Step from one position to the next.
    pub stride: usize,
    /// Zeros around the image.
    pub padding: usize,
}

impl Window {
    /// Positions along a side of `side` pixels: floor((side + 2 padding - kernel) / stride) + 1.
    #[must_use]
    pub fn positions(self, side: usize) -> usize {
        (side + 2 * self.padding).checked_sub(self.kernel).map_or(0, |room| room / self.stride + 1)
    }
}

/// x is (batch, height, width, channels); the result is (batch, rows, columns, kernel * kernel * channels), zeros where the
/// window looks past the edge. A kernel (out, channels, kernel, kernel) permuted to (out, kernel, kernel, channels) fits it.
///
/// # Errors
/// A device failure.
pub fn patches(x: &Tensor, window: Window) -> Result<Tensor> {
    if super::is_fast(x) {
        return x.contiguous()?.apply_op1_no_bwd(&Patches(window));
    }
    reference(x, window)
}

/// One strided slice for each place in the window.
fn reference(x: &Tensor, window: Window) -> Result<Tensor> {
    let Window { kernel, stride, padding } = window;
    let (_, height, width, _) = x.dims4()?;
    let (rows, columns) = (window.positions(height), window.positions(width));
    // One stride more at the end, so that every slice can be taken whole before it is thinned out.
    let padded = x.pad_with_zeros(1, padding, padding + stride)?.pad_with_zeros(2, padding, padding + stride)?;
    let every = |x: &Tensor, dim: usize, start: usize, count: usize| -> Result<Tensor> {
        let indices: Vec<u32> = (0..count).map(|i| u32::try_from(start + i * stride).unwrap_or(u32::MAX)).collect();
        x.contiguous()?.index_select(&Tensor::new(indices, x.device())?, dim)
    };
    let mut taps = Vec::with_capacity(kernel * kernel);
    for y in 0..kernel {
        let lines = every(&padded, 1, y, rows)?;
        for x in 0..kernel {
            taps.push(every(&lines, 2, x, columns)?);
        }
    }
    Tensor::cat(&taps, 3)
}

struct Patches(Window);

impl CustomOp1 for Patches {
    fn name(&self) -> &'static str {
        "patches"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (batch, height, width, channels) = layout.shape().dims4()?;
        let Window { kernel, stride, padding } = self.0;
        let (rows, columns) = (self.0.positions(height), self.0.positions(width));
        let (x, patch) = (super::floats(x, layout)?, kernel * kernel * channels);
        let mut out = vec![0.0; batch * rows * columns * patch];
        out.par_chunks_mut((columns * patch).max(1)).enumerate().for_each(|(index, out)| {
            let (image, row) = (index / rows, index % rows);
            let image = &x[image * height * width * channels..(image + 1) * height * width * channels];
            for (column, out) in out.chunks_exact_mut(patch).enumerate() {
                let left = column * stride;
                // Columns of the kernel that lie inside the image.
                let (from, to) =
                    (padding.saturating_sub(left).min(kernel), kernel.min((width + padding).saturating_sub(left)));
                for dy in 0..kernel {
                    let Some(y) = (row * stride + dy).checked_sub(padding).filter(|&y| y < height) else { continue };
                    if from < to {
                        let source = (y * width + left + from - padding) * channels;
                        let target = (dy * kernel + from) * channels;
                        let count = (to - from) * channels;
                        out[target..target + count].copy_from_slice(&image[source..source + count]);
                    }
                }
            }
        });
        Ok((CpuStorage::F32(out), (batch, rows, columns, patch).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_over_odd_sizes() {
        for (batch, height, width, channels, kernel, stride, padding) in [
            (1, 1, 1, 1, 1, 1, 0),
            (2, 5, 7, 3, 3, 2, 1),
            (1, 9, 8, 3, 7, 4, 3),
            (1, 2, 2, 5, 3, 2, 1),
            (2, 6, 6, 4, 2, 2, 0),
            (1, 3, 4, 2, 15, 8, 7),
        ] {
            let (x, window) = (random(&[batch, height, width, channels], 1), Window { kernel, stride, padding });
            assert_close(&patches(&x, window).unwrap(), &reference(&x, window).unwrap(), 0.0);
        }
    }

    #[test]
    fn a_product_with_the_kernel_is_the_convolution() {
        let (x, kernel) = (random(&[1, 9, 7, 3], 1), random(&[4, 3, 3, 3], 2));
        let window = Window { kernel: 3, stride: 2, padding: 1 };
        let ours = patches(&x, window).unwrap();
        let flat = kernel.permute((0, 2, 3, 1)).unwrap().reshape((4, 27)).unwrap();
        let ours = super::super::linear(&ours, &flat, None, super::super::After::Nothing).unwrap();
        let theirs = x.permute((0, 3, 1, 2)).unwrap().contiguous().unwrap().conv2d(&kernel, 1, 2, 1, 1).unwrap();
        assert_close(&ours, &theirs.permute((0, 2, 3, 1)).unwrap().contiguous().unwrap(), 1e-5);
    }
}
