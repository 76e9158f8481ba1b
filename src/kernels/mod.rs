//! The tensor operations that Tapline does itself: each has a plain version in tensor operations, which runs everywhere and
//! is the reference, and a fast one for f32 on the CPU. All work on (batch, tokens, channels) or (batch, height, width,
//! channels), channels last.

pub mod add;
mod arithmetic;
pub mod attention;
mod attention_layers;
#[cfg(any(test, feature = "cuda"))]
mod catalogue;
pub mod channel_attention;
pub mod channel_block;
pub mod convolution;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod depthwise;
pub mod gelu;
pub mod image_tokens;
#[cfg(any(test, feature = "cuda"))]
mod images;
pub mod layer_norm;
pub mod linear;
pub mod linear_norm;
pub mod logits;
mod memory;
pub mod mlp;
mod number;
mod packed;
mod scratch;
pub mod step;
pub mod weight;
pub mod window_attention;
pub mod window_block;

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;

use candle_core::{CpuStorage, DType, InplaceOp1, Layout, Result, Storage, Tensor, WithDType};

pub use add::add_to_each;
pub use attention::{AttentionShape, attention};
pub use channel_attention::channel_attention;
pub use channel_block::{ChannelBlock, channel_block};
pub use convolution::{Order, Window, convolution};
pub use depthwise::depthwise_residual;
pub use gelu::gelu;
pub use image_tokens::image_tokens;
pub use layer_norm::{Norm, layer_norm};
pub use linear::{After, Layer, linear, norm_linear};
pub use linear_norm::linear_norm;
pub use mlp::{mlp, mlp_norm};
pub use packed::bf16::instructions as bf16_instructions;
pub use weight::{Stored, Weight};
pub use window_attention::window_attention;
pub use window_block::{WindowBlock, window_block};

/// Whether the fast version can take this tensor.
fn is_fast(x: &Tensor) -> bool {
    x.device().is_cpu() && x.dtype() == DType::F32
}

/// The numbers of a tensor, borrowed behind the lock that Candle has on them.
struct Numbers<Lock, T> {
    storage: Lock,
    range: std::ops::Range<usize>,
    number: PhantomData<T>,
}

/// The numbers of a contiguous f32 tensor on the CPU.
fn numbers(x: &Tensor) -> Result<impl Deref<Target = [f32]>> {
    numbers_of::<f32>(x)
}

/// The numbers of a contiguous tensor on the CPU.
fn numbers_of<T: WithDType>(x: &Tensor) -> Result<impl Deref<Target = [T]>> {
    let (storage, layout) = x.storage_and_layout();
    let Some((from, to)) = layout.contiguous_offsets() else {
        candle_core::bail!("the operand of a kernel must be contiguous")
    };
    if !matches!(&*storage, Storage::Cpu(cpu) if cpu.as_slice::<T>().is_ok_and(|numbers| to <= numbers.len())) {
        candle_core::bail!("the operand of a kernel is {:?} on {:?}", x.dtype(), x.device());
    }
    Ok(Numbers { storage, range: from..to, number: PhantomData })
}

impl<Lock: Deref<Target = Storage>, T: WithDType> Deref for Numbers<Lock, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &*self.storage {
            Storage::Cpu(cpu) => cpu.as_slice::<T>().map_or(&[], |numbers| &numbers[self.range.clone()]),
            // Looked at when it was borrowed.
            _ => &[],
        }
    }
}

/// Lets `work` change the numbers of a contiguous f32 tensor on the CPU where they are: fresh memory for each result would
/// cost more than much of the arithmetic. Every tensor that shares the memory of `x` changes with it.
fn change(x: Tensor, work: impl FnOnce(&mut [f32]) -> Result<()>) -> Result<Tensor> {
    struct Change<F>(Cell<Option<F>>);

    impl<F: FnOnce(&mut [f32]) -> Result<()>> InplaceOp1 for Change<F> {
        fn name(&self) -> &'static str {
            "kernel"
        }

        fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
            let (Some((from, to)), Some(work)) = (layout.contiguous_offsets(), self.0.take()) else {
                candle_core::bail!("the operand of a kernel must be contiguous")
            };
            match storage {
                CpuStorage::F32(numbers) if to <= numbers.len() => work(&mut numbers[from..to]),
                _ => candle_core::bail!("the operand of a kernel is no f32 tensor on the CPU"),
            }
        }
    }

    let x = if x.is_contiguous() { x } else { x.contiguous()? };
    x.inplace_op1(&Change(Cell::new(Some(work))))?;
    Ok(x)
}

/// A matrix inside a slice: where its first element is, and how far apart rows and columns are.
#[derive(Debug, Clone, Copy)]
struct Matrix<'a> {
    values: &'a [f32],
    row: usize,
    column: usize,
}

impl<'a> Matrix<'a> {
    /// Row by row, rows `row` elements apart.
    fn rows(values: &'a [f32], row: usize) -> Self {
        Self { values, row, column: 1 }
    }

    fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    /// Whether a matrix of this many rows and columns lies inside the slice.
    fn holds(self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.values.len()
    }
}

/// `out[m, n] = keep * out + scale * (a[m, k] @ b[k, n])`, `out` row by row, rows `row` elements apart. On this
/// thread alone.
fn product(
    (m, k, n): (usize, usize, usize),
    a: Matrix<'_>,
    b: Matrix<'_>,
    (out, row): (&mut [f32], usize),
    (keep, scale): (bool, f32),
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(a.holds(m, k) && b.holds(k, n) && n <= row && (m - 1) * row + n <= out.len(), "operands too short");
    let stride = |step: usize| isize::try_from(step).unwrap_or(isize::MAX);
    #[expect(unsafe_code, reason = "the matrix product takes pointers and strides")]
    // SAFETY: the assertion above keeps every element that these sizes and strides reach inside its slice, `out` is borrowed
    // mutably and so overlaps neither operand, and strides come from lengths of existing slices.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            stride(row),
            keep,
            a.values.as_ptr(),
            stride(a.column),
            stride(a.row),
            b.values.as_ptr(),
            stride(b.column),
            stride(b.row),
            1.0,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use candle_core::{Device, Tensor};

    /// A tensor of random numbers that are the same in every run.
    pub fn random(shape: &[usize], seed: u64) -> Tensor {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
            })
            .collect();
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    }

    /// Asserts that two tensors are equal within a tolerance.
    pub fn assert_close(a: &Tensor, b: &Tensor, tolerance: f32) {
        assert_eq!(a.dims(), b.dims());
        let difference = (a - b).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap();
        let difference = difference.to_scalar::<f32>().unwrap();
        assert!(difference <= tolerance, "differs by {difference}, more than {tolerance}");
    }
}
