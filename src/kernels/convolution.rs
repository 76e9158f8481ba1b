//! A convolution as a matrix product: the pixels under each position are put side by side, a few positions at a time.

use candle_core::{Device, Result, Tensor};
use rayon::prelude::*;

use super::linear::{After, Layer, bias_of, linear, rows_together};
use super::number::Number;
use super::numbers;
use super::packed::{Packed, Rows, Start, Target, multiply};
use super::weight::Form;

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

/// How an image lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// (batch, channels, height, width): plane by plane, as images are prepared.
    Planes,
    /// (batch, height, width, channels): as everything after the first convolution lies.
    ChannelsLast,
}

/// The convolution of x with bias; the result is (batch, rows, columns, out), channels last whatever the order of x.
///
/// The layer's weight is the kernel (out, channels, kernel, kernel) as a matrix: flattened as it is for planes, and permuted
/// to (out, kernel, kernel, channels) before for channels last.
///
/// # Errors
/// Shapes that do not fit, or a device failure.
pub fn convolution(x: &Tensor, order: Order, window: Window, layer: Layer<'_>) -> Result<Tensor> {
    #[cfg(feature = "cuda")]
    if x.device().is_cuda() {
        return super::cuda::convolution(x, order, window, layer);
    }
    match &layer.weight.0 {
        Form::F32(weight) => fast(x, order, window, weight, layer.bias),
        Form::Bf16(weight) => fast(x, order, window, weight, layer.bias),
        Form::Plain(_) => linear(&patches(x, order, window)?, layer, After::Nothing),
    }
}

fn fast<N: Number>(
    x: &Tensor,
    order: Order,
    window: Window,
    weight: &Packed<N>,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    let geometry = Geometry::new(x, order, window)?;
    let (out, patch) = weight.dims();
    if patch != geometry.patch() {
        candle_core::bail!("a kernel of {patch} numbers for {:?} in {window:?}", x.dims());
    }
    let x = x.contiguous()?;
    let (x, bias) = (numbers(&x)?, bias_of(bias, out)?);
    let (x, bias) = (&*x, bias.as_deref().unwrap_or_default());
    let (batch, rows, columns) = (x.len() / geometry.image().max(1), geometry.rows, geometry.columns);
    let mut result = vec![0.0; batch * rows * columns * out];
    let (together, stride) = (rows_together::<N>(batch * rows * columns), N::stride(patch));
    result.par_chunks_mut(together * out).enumerate().for_each(|(block, result)| {
        let count = result.len() / out;
        N::with_scratch(count * stride, |place| {
            for (position, place) in place.chunks_exact_mut(stride).enumerate() {
                let (filled, rest) = place.split_at_mut(patch);
                geometry.gather(filled, x, block * together + position);
                rest.fill(N::default());
            }
            let positions = Rows { values: &*place, stride, count };
            multiply(positions, weight.panels(), bias, Target::Sums { out: result, stride: out, start: Start::Fresh });
        });
    });
    Tensor::from_vec(result, (batch, rows, columns, out), &Device::Cpu)
}

/// (batch, rows, columns, numbers under the window), zeros where it looks past the edge: one strided slice for each place in
/// the window.
fn patches(x: &Tensor, order: Order, window: Window) -> Result<Tensor> {
    let Window { kernel, stride, padding } = window;
    let x = if order == Order::Planes { x.permute((0, 2, 3, 1))?.contiguous()? } else { x.clone() };
    let (batch, height, width, channels) = x.dims4()?;
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
    let taps = Tensor::cat(&taps, 3)?; // (batch, rows, columns, kernel * kernel * channels)
    if order == Order::ChannelsLast {
        return Ok(taps);
    }
    let taps = taps.reshape((batch * rows * columns, kernel * kernel, channels))?.transpose(1, 2)?;
    taps.reshape((batch, rows, columns, channels * kernel * kernel))
}

/// An image as planes of pixels: one plane of pixels of all channels, or one for each channel.
struct Geometry {
    window: Window,
    planes: usize,
    pixel: usize,
    height: usize,
    width: usize,
    rows: usize,
    columns: usize,
}

impl Geometry {
    fn new(x: &Tensor, order: Order, window: Window) -> Result<Self> {
        let (_, a, b, c) = x.dims4()?;
        let (planes, height, width, pixel) = if order == Order::Planes { (a, b, c, 1) } else { (1, a, b, c) };
        let (rows, columns) = (window.positions(height), window.positions(width));
        Ok(Self { window, planes, pixel, height, width, rows, columns })
    }

    fn image(&self) -> usize {
        self.planes * self.height * self.width * self.pixel
    }

    fn patch(&self) -> usize {
        self.planes * self.window.kernel * self.window.kernel * self.pixel
    }

    /// The numbers under a position, counted through all rows and images.
    fn gather<N: Number>(&self, patch: &mut [N], x: &[f32], position: usize) {
        let Window { kernel, stride, padding } = self.window;
        let (row, column) = (position / self.columns % self.rows, position % self.columns);
        let image = position / (self.columns * self.rows) * self.image();
        let left = column * stride;
        // Columns of the kernel that lie inside the image.
        let to = kernel.min((self.width + padding).saturating_sub(left));
        let from = padding.saturating_sub(left).min(to);
        for (line, patch) in patch.chunks_exact_mut(kernel * self.pixel).enumerate() {
            let (plane, dy) = (line / kernel, line % kernel);
            let Some(y) = (row * stride + dy).checked_sub(padding).filter(|&y| y < self.height) else {
                patch.fill(N::default());
                continue;
            };
            patch[..from * self.pixel].fill(N::default());
            patch[to * self.pixel..].fill(N::default());
            if from < to {
                let x = &x[image + ((plane * self.height + y) * self.width + left + from - padding) * self.pixel..];
                let patch = &mut patch[from * self.pixel..to * self.pixel];
                patch.iter_mut().zip(x).for_each(|(patch, x)| *patch = N::from_f32(*x));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::super::Weight;
    use super::super::tests::{assert_close, random};
    use super::*;

    #[test]
    fn equals_the_reference_and_candles_convolution_over_odd_sizes() {
        for (batch, height, width, channels, kernel, stride, padding, out) in [
            (1, 1, 1, 1, 1, 1, 0, 1),
            (2, 5, 7, 3, 3, 2, 1, 4),
            (1, 9, 8, 3, 7, 4, 3, 33),
            (1, 2, 2, 5, 3, 2, 1, 3),
            (2, 6, 6, 4, 2, 2, 0, 65),
            (1, 17, 23, 2, 15, 11, 2, 5),
        ] {
            let (x, kernels) =
                (random(&[batch, channels, height, width], 1), random(&[out, channels, kernel, kernel], 2));
            let (bias, window) = (random(&[out], 3), Window { kernel, stride, padding });
            let theirs = x.conv2d(&kernels, padding, stride, 1, 1).unwrap().permute((0, 2, 3, 1)).unwrap();
            let theirs = theirs.broadcast_add(&bias).unwrap().contiguous().unwrap();
            let last = x.permute((0, 2, 3, 1)).unwrap();
            for (x, order, weight) in [
                (&x, Order::Planes, kernels.clone()),
                (&last, Order::ChannelsLast, kernels.permute((0, 2, 3, 1)).unwrap()),
            ] {
                let weight = weight.reshape((out, kernel * kernel * channels)).unwrap();
                let half = Weight::new(weight.to_dtype(DType::BF16).unwrap()).unwrap();
                for (weight, tolerance) in
                    [(Weight::new(weight.clone()).unwrap(), 3e-5), (Weight(Form::Plain(weight)), 3e-5), (half, 0.1)]
                {
                    let layer = Layer { weight: &weight, bias: Some(&bias) };
                    assert_close(&convolution(x, order, window, layer).unwrap(), &theirs, tolerance);
                }
            }
        }
    }

    #[test]
    fn refuses_a_kernel_of_another_size() {
        let weight = Weight::new(random(&[2, 8], 1)).unwrap();
        let window = Window { kernel: 3, stride: 1, padding: 1 };
        let layer = Layer { weight: &weight, bias: None };
        assert!(convolution(&random(&[1, 4, 4, 1], 2), Order::ChannelsLast, window, layer).is_err());
    }
}
