//! How a kernel is put on a device's stream: tensors become addresses, sizes the numbers that kernels count in, and what is
//! given is compared with what the kernel takes.
//!
//! All work of a device goes through its one stream, in order: a kernel sees what was written by those before it, and
//! memory that is given back is not handed out again before the kernels that read it are through.

use std::ops::Range;

use candle_core::backend::BackendDevice;
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, DevicePtr, LaunchConfig, PushKernelArg, SyncOnDrop};
use candle_core::cuda_backend::{CudaStorageSlice, WrapErr};
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, DType, Device, Error, Result, Shape, Storage, StorageRef, Tensor};

use super::loader;
use crate::kernels::catalogue::Kernel;

/// A kernel with its arguments, in the order of its parameters. What is wrong with one is kept and returned by `launch`.
pub(super) struct Call<'a> {
    kernel: Kernel,
    /// Its device and its number format are the kernel's.
    like: &'a Tensor,
    operands: Vec<Operand<'a>>,
    arguments: Vec<Argument>,
    wrong: Option<Error>,
}

/// The numbers of a tensor, locked for as long as the call is prepared. A tensor that a kernel writes is locked for
/// reading too: what is on the device is no memory of this program, the order of the stream is what keeps it whole, and
/// views of one buffer may then be given to one kernel.
struct Operand<'a> {
    storage: StorageRef<'a>,
    range: Range<usize>,
    written: bool,
}

enum Argument {
    Null,
    /// The address of an operand.
    Operand(usize),
    Int(i32),
    Long(i64),
    Float(f32),
}

impl Argument {
    /// The letter that [`Entry::parameters`](crate::kernels::catalogue::Entry) has for it.
    const fn kind(&self) -> char {
        match self {
            Self::Null | Self::Operand(_) => 'p',
            Self::Int(_) => 'i',
            Self::Long(_) => 'l',
            Self::Float(_) => 'f',
        }
    }
}

impl<'a> Call<'a> {
    /// A call on the device of `like`, in its number format.
    pub(super) fn new(kernel: Kernel, like: &'a Tensor) -> Self {
        Self { kernel, like, operands: Vec::new(), arguments: Vec::new(), wrong: None }
    }

    /// A contiguous tensor that the kernel reads.
    pub(super) fn read(self, x: &'a Tensor, dtype: DType) -> Self {
        self.contiguous(x, dtype, false)
    }

    /// A contiguous tensor that the kernel reads, or a null pointer.
    pub(super) fn read_or_null(mut self, x: Option<&'a Tensor>, dtype: DType) -> Self {
        if let Some(x) = x {
            return self.read(x, dtype);
        }
        self.arguments.push(Argument::Null);
        self
    }

    /// A contiguous tensor that the kernel writes, or reads and writes.
    pub(super) fn write(self, x: &'a Tensor, dtype: DType) -> Self {
        self.contiguous(x, dtype, true)
    }

    /// A tensor that the kernel reads by strides: the caller checked the layout.
    pub(super) fn read_strided(self, x: &'a Tensor, dtype: DType) -> Self {
        let layout = x.layout();
        let steps = layout.dims().iter().zip(layout.stride());
        let last: usize = steps.map(|(&dim, &stride)| dim.saturating_sub(1) * stride).sum();
        let start = layout.start_offset();
        self.operand(x, dtype, start..start + last + 1, false)
    }

    /// An `int`.
    pub(super) fn int(mut self, number: usize) -> Self {
        match i32::try_from(number) {
            Ok(number) => self.arguments.push(Argument::Int(number)),
            Err(_) => self.fail(&format!("{number} is more than a kernel counts, {}", i32::MAX)),
        }
        self
    }

    /// A `long long`.
    pub(super) fn long(mut self, number: usize) -> Self {
        match i64::try_from(number) {
            Ok(number) => self.arguments.push(Argument::Long(number)),
            Err(_) => self.fail(&format!("{number} is more than a kernel counts, {}", i64::MAX)),
        }
        self
    }

    /// A `float`.
    pub(super) fn float(mut self, number: f32) -> Self {
        self.arguments.push(Argument::Float(number));
        self
    }

    /// Puts the kernel on the stream, `grid` blocks (x, y, z) of `block` threads (x, y).
    ///
    /// # Safety
    /// With these sizes and this grid the kernel must stay inside the operands' ranges, as `kernels/README.md` describes
    /// it.
    pub(super) unsafe fn launch(mut self, grid: [usize; 3], block: [u32; 2]) -> Result<()> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        self.check()?;
        let config =
            LaunchConfig { grid_dim: self.grid(grid)?, block_dim: (block[0], block[1], 1), shared_mem_bytes: 0 };
        let device = self.like.device().as_cuda_device()?;
        let functions = loader::functions(device)?;
        let function = functions.get(self.kernel, self.like.dtype())?;
        // The guards record the use on the stream, where the device keeps such records.
        let places: Vec<(u64, SyncOnDrop<'_>)> =
            self.operands.iter().map(|operand| operand.place(device)).collect::<Result<_>>()?;
        let stream = device.cuda_stream();
        let mut launch = stream.launch_builder(function);
        for argument in &self.arguments {
            match argument {
                Argument::Null => launch.arg(&0u64),
                Argument::Operand(index) => launch.arg(&places[*index].0),
                Argument::Int(number) => launch.arg(number),
                Argument::Long(number) => launch.arg(number),
                Argument::Float(number) => launch.arg(number),
            };
        }
        // SAFETY: number and kinds of the arguments are those of the function's parameters, by `check`; every address is
        // that of a range inside a live allocation of this device, by `Operand::place`, and what is freed from now on is
        // freed on the same stream, behind the kernel; that the kernel stays inside the ranges is the caller's promise.
        unsafe { launch.launch(config) }.w()?;
        Ok(())
    }

    fn contiguous(mut self, x: &'a Tensor, dtype: DType, written: bool) -> Self {
        let Some((start, end)) = x.layout().contiguous_offsets() else {
            self.fail(&format!("a tensor {:?} must be contiguous", x.dims()));
            return self;
        };
        self.operand(x, dtype, start..end, written)
    }

    fn operand(mut self, x: &'a Tensor, dtype: DType, range: Range<usize>, written: bool) -> Self {
        let most = if self.kernel.counts_in_64_bits() { usize::MAX } else { i32::MAX as usize };
        if x.dtype() != dtype {
            self.fail(&format!("a tensor {:?} is {:?}, not {dtype:?}", x.dims(), x.dtype()));
        } else if x.elem_count() == 0 || range.len() > most {
            self.fail(&format!("a tensor {:?} has no numbers, or more than {most}", x.dims()));
        } else {
            self.arguments.push(Argument::Operand(self.operands.len()));
            let (storage, _) = x.storage_and_layout();
            self.operands.push(Operand { storage, range, written });
        }
        self
    }

    /// Keeps the first thing that is wrong.
    fn fail(&mut self, message: &str) {
        let name = self.kernel.entry().function;
        self.wrong.get_or_insert_with(|| Error::Msg(format!("CUDA kernel `{name}`: {message}")).bt());
    }

    /// That the arguments are of the kinds of the parameters, and nothing is written that is another operand too.
    fn check(&self) -> Result<()> {
        let entry = self.kernel.entry();
        if !self.arguments.iter().map(Argument::kind).eq(entry.parameters.chars()) {
            let given: String = self.arguments.iter().map(Argument::kind).collect();
            candle_core::bail!("CUDA kernel `{}` takes {}, not {given}", entry.function, entry.parameters);
        }
        for (index, written) in self.operands.iter().enumerate().filter(|(_, operand)| operand.written) {
            let others = self.operands.iter().enumerate().filter(|(other, _)| *other != index);
            if others.into_iter().any(|(_, other)| written.overlaps(other)) {
                candle_core::bail!("CUDA kernel `{}` would write over what it reads", entry.function);
            }
        }
        Ok(())
    }

    fn grid(&self, grid: [usize; 3]) -> Result<(u32, u32, u32)> {
        let limits = [i32::MAX as usize, 65_535, 65_535];
        if grid.iter().zip(limits).any(|(&blocks, limit)| blocks == 0 || blocks > limit) {
            candle_core::bail!("CUDA kernel `{}` on a grid of {grid:?} blocks", self.kernel.entry().function);
        }
        let [x, y, z] = grid.map(|blocks| u32::try_from(blocks).unwrap_or(0));
        Ok((x, y, z))
    }
}

impl Operand<'_> {
    /// Its address on `device`.
    fn place(&self, device: &CudaDevice) -> Result<(u64, SyncOnDrop<'_>)> {
        let Storage::Cuda(storage) = &*self.storage else {
            candle_core::bail!("the operand of a CUDA kernel is not on a GPU")
        };
        if storage.device.id() != device.id() {
            candle_core::bail!("the operands of a CUDA kernel are on different devices");
        }
        let place = match &storage.slice {
            CudaStorageSlice::U8(slice) => address(slice, &self.range),
            CudaStorageSlice::U32(slice) => address(slice, &self.range),
            CudaStorageSlice::I32(slice) => address(slice, &self.range),
            CudaStorageSlice::F32(slice) => address(slice, &self.range),
            CudaStorageSlice::BF16(slice) => address(slice, &self.range),
            CudaStorageSlice::F16(slice) => address(slice, &self.range),
            _ => None,
        };
        place.ok_or_else(|| Error::Msg(format!("no numbers {:?} of {:?} on the GPU", self.range, self.storage.dtype())))
    }

    fn overlaps(&self, other: &Operand<'_>) -> bool {
        std::ptr::eq(&raw const *self.storage, &raw const *other.storage)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

/// The address of a range of an allocation; `None`: it is not inside.
fn address<'a, T>(slice: &'a CudaSlice<T>, range: &Range<usize>) -> Option<(u64, SyncOnDrop<'a>)> {
    if range.end > slice.len() {
        return None;
    }
    let (start, guard) = slice.device_ptr(slice.stream());
    Some((start + u64::try_from(range.start * size_of::<T>()).ok()?, guard))
}

/// A tensor of whatever was in its memory before: a kernel has to write all of it. Zeroing it would be one more pass.
pub(super) fn empty(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
    let (shape, device) = (shape.into(), device.as_cuda_device()?);
    if shape.elem_count() == 0 {
        candle_core::bail!("a CUDA kernel was asked for a result {:?}", shape.dims());
    }
    // SAFETY: the memory is the device's; a number format has no invalid bits, and the callers hand the tensor to a
    // kernel that writes all of it before they return it.
    let storage = unsafe { device.alloc_uninit(&shape, dtype) }?;
    Ok(Tensor::from_storage(Storage::Cuda(storage), shape, BackpropOp::none(), false))
}

/// Refuses a tensor that is not of the shape a kernel needs.
pub(super) fn expect(name: &str, x: &Tensor, shape: &[usize]) -> Result<()> {
    if x.dims() == shape { Ok(()) } else { candle_core::bail!("`{name}` is {:?}, but {shape:?} is needed", x.dims()) }
}

/// A few whole numbers on the device, such as lengths. While a graph is captured this is refused, or the numbers become
/// part of the graph: what changes from one replay to the next must lie in a tensor of its own.
pub(super) fn integers(numbers: &[usize], device: &Device) -> Result<Tensor> {
    let integers: std::result::Result<Vec<i32>, _> = numbers.iter().map(|&number| i32::try_from(number)).collect();
    let integers = integers.map_err(|_| Error::Msg(format!("{numbers:?} are more than a kernel counts")))?;
    Tensor::from_vec(integers, numbers.len(), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that are on no GPU: a call of theirs is refused, at the latest for that.
    fn tensor(shape: &[usize]) -> Tensor {
        Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap()
    }

    fn refusal(call: Call<'_>, grid: [usize; 3]) -> String {
        // SAFETY: without a GPU nothing is launched.
        unsafe { call.launch(grid, [256, 1]) }.unwrap_err().to_string()
    }

    #[test]
    fn a_call_that_fits_is_refused_for_its_device_only() {
        let (x, bias) = (tensor(&[2, 3]), tensor(&[3]));
        let call = Call::new(Kernel::Bias, &x).write(&x, DType::F32).read(&bias, DType::F32).long(6).int(3);
        assert!(refusal(call, [1, 1, 1]).contains("expected a cuda device"));
    }

    #[test]
    fn arguments_are_compared_with_the_parameters() {
        let (x, bias) = (tensor(&[2, 3]), tensor(&[3]));
        let call = || Call::new(Kernel::Bias, &x).write(&x, DType::F32).read(&bias, DType::F32);
        for (call, given) in
            [(call(), "pp"), (call().int(6).int(3), "ppii"), (call().long(6).int(3).float(1.0), "pplif")]
        {
            assert!(refusal(call, [1, 1, 1]).contains(&format!("`bias` takes ppli, not {given}")), "{given}");
        }
    }

    #[test]
    fn operands_must_be_contiguous_of_the_type_and_of_some_size() {
        let (x, empty) = (tensor(&[2, 3]), tensor(&[0, 3]));
        let turned = x.t().unwrap();
        for (operand, dtype, message) in [
            (&turned, DType::F32, "must be contiguous"),
            (&x, DType::BF16, "is F32, not BF16"),
            (&empty, DType::F32, "has no numbers"),
        ] {
            let message_of = refusal(Call::new(Kernel::Bias, &x).write(operand, dtype), [1, 1, 1]);
            assert!(message_of.contains("CUDA kernel `bias`") && message_of.contains(message), "{message_of}");
        }
    }

    #[test]
    fn nothing_is_written_over_what_is_read() {
        let cache = tensor(&[4, 3]);
        let row = |row: usize| cache.narrow(0, row, 2).unwrap();
        let (first, second, third) = (row(0), row(1), row(2));
        let call =
            |bias| Call::new(Kernel::Bias, &cache).write(&first, DType::F32).read(bias, DType::F32).long(6).int(3);
        assert!(refusal(call(&second), [1, 1, 1]).contains("write over"));
        assert!(refusal(call(&third), [1, 1, 1]).contains("expected a cuda device"), "they lie apart");
    }

    #[test]
    fn sizes_and_grids_have_limits() {
        let x = tensor(&[2, 3]);
        let call = || Call::new(Kernel::Bias, &x).write(&x, DType::F32).read_or_null(None, DType::F32).long(6);
        assert!(refusal(call().int(1 << 31), [1, 1, 1]).contains("more than a kernel counts"));
        for grid in [[0, 1, 1], [1, 65_536, 1], [1, 1, 65_536], [1 << 31, 1, 1]] {
            assert!(refusal(call().int(3), grid).contains("on a grid of"), "{grid:?}");
        }
    }

    #[test]
    fn strided_operands_reach_to_their_last_number() {
        let packed = tensor(&[2, 5, 12]);
        let part = packed.narrow(2, 4, 4).unwrap();
        let call = Call::new(Kernel::Bias, &packed).read_strided(&part, DType::F32);
        assert_eq!(call.operands[0].range, 4..4 + 60 + 4 * 12 + 4);
    }
}
