//! From the bytes of a screenshot to the numbers of a model's input, on the GPU: Pillow's resize, bit for bit, and the
//! normalisation. Four times fewer bytes are uploaded than the input has.

use std::num::NonZeroUsize;

use candle_core::{DType, Device, Result, Tensor};
use lru::LruCache;

use super::launch::{Call, empty, expect};
use crate::geometry::Size;
use crate::kernels::catalogue::Kernel;
use crate::screenshot::{Normalizer, Taps};

/// Pixels that one block computes: a thread each.
const COLUMNS: u32 = 32;
const ROWS: u32 = 8;
/// Sides whose weights are kept on the device: those of a few kinds of screens, and of the input itself.
const SIDES: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// Resizes and normalises for one model on one device.
#[derive(Debug)]
pub struct Resizer {
    to: Size,
    /// f32 (3, 256).
    table: Tensor,
    /// By the sides before and after.
    axes: LruCache<(usize, usize), Axis>,
}

/// [`Taps`] on the device.
#[derive(Debug, Clone)]
struct Axis {
    /// i32 (outputs).
    first: Tensor,
    /// i32 (outputs).
    count: Tensor,
    /// i32 (taps, outputs).
    weights: Tensor,
}

impl Resizer {
    /// For inputs of size `to`.
    ///
    /// # Errors
    /// A device failure.
    pub fn new(to: Size, normalizer: &Normalizer, device: &Device) -> Result<Self> {
        let table = Tensor::from_slice(normalizer.table(), (3, 256), device)?;
        Ok(Self { to, table, axes: LruCache::new(SIDES) })
    }

    /// Turns rgb, u8 (height, width, 3), into out, (3, `to.height`, `to.width`) in any number format, such as one item of a
    /// batch. A size that was not seen lately has its weights uploaded first.
    ///
    /// # Errors
    /// Shapes or types that do not fit, operands that are not contiguous, or a device failure.
    pub fn resize_into(&mut self, out: &Tensor, rgb: &Tensor) -> Result<()> {
        let (height, width, channels) = rgb.dims3()?;
        let (to_height, to_width) = (self.to.height as usize, self.to.width as usize);
        expect("out", out, &[3, to_height, to_width])?;
        if channels != 3 {
            candle_core::bail!("a screenshot {:?} is not (height, width, 3)", rgb.dims());
        }
        let between;
        let wide = if width == to_width {
            rgb
        } else {
            between = self.horizontal(rgb, to_width)?;
            &between
        };
        let axis = self.axis(height, to_height, rgb.device())?;
        let call = Call::new(Kernel::ResizeVertical, out)
            .read(wide, DType::U8)
            .write(out, out.dtype())
            .read(&axis.first, DType::I32)
            .read(&axis.count, DType::I32)
            .read(&axis.weights, DType::I32)
            .read(&self.table, DType::F32)
            .int(to_height)
            .int(to_width);
        // SAFETY: wide has height x to_width x 3 bytes, out 3 x to_height x to_width numbers, first and count to_height,
        // weights taps x to_height, the table 3 x 256; the windows of an axis from `height` lie inside the picture.
        unsafe { call.launch(grid(to_width, to_height), [COLUMNS, ROWS]) }
    }

    /// (height, width, 3) to (height, `to`, 3).
    fn horizontal(&mut self, rgb: &Tensor, to: usize) -> Result<Tensor> {
        let (height, width, _) = rgb.dims3()?;
        let axis = self.axis(width, to, rgb.device())?;
        let out = empty((height, to, 3), DType::U8, rgb.device())?;
        let call = Call::new(Kernel::ResizeHorizontal, rgb)
            .read(rgb, DType::U8)
            .write(&out, DType::U8)
            .read(&axis.first, DType::I32)
            .read(&axis.count, DType::I32)
            .read(&axis.weights, DType::I32)
            .int(height)
            .int(width)
            .int(to);
        // SAFETY: rgb has height x width x 3 bytes, out height x to x 3, first and count `to` numbers, weights taps x to;
        // the windows of an axis from `width` lie inside the row.
        unsafe { call.launch(grid(to, height), [COLUMNS, ROWS]) }?;
        Ok(out)
    }

    fn axis(&mut self, from: usize, to: usize, device: &Device) -> Result<Axis> {
        let upload = || -> Result<Axis> {
            let taps = Taps::new(from, to);
            let most = taps.most();
            Ok(Axis {
                first: Tensor::from_vec(taps.first, to, device)?,
                count: Tensor::from_vec(taps.count, to, device)?,
                weights: Tensor::from_vec(taps.weights, (most, to), device)?,
            })
        };
        self.axes.try_get_or_insert((from, to), upload).cloned()
    }
}

fn grid(width: usize, height: usize) -> [usize; 3] {
    [width.div_ceil(COLUMNS as usize), height.div_ceil(ROWS as usize), 1]
}
