//! Numbers on their way to a device while it computes: page-locked memory that the device's copy engine reads by itself, and a
//! stream beside that of the kernels.
//!
//! There are two places, used in turns. Each has memory on the host, which the processor fills, memory on the device, which the
//! copy fills, and two events that keep the streams apart: kernels wait until the numbers are there, and the next copy waits
//! until kernels have read those before.

use std::sync::Arc;

use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::{
    CudaEvent, CudaSlice, CudaStream, DevicePtrMut, PinnedHostSlice, result,
};
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, Device, Result, Shape, Storage, Tensor};

/// Places to upload to.
pub struct Uploads {
    device: CudaDevice,
    copies: Arc<CudaStream>,
    places: Vec<Place>,
    next: usize,
}

struct Place {
    host: PinnedHostSlice<f32>,
    device: CudaSlice<f32>,
    /// The numbers are on the device.
    arrived: CudaEvent,
    /// Kernels have read them.
    read: CudaEvent,
}

/// Uploads that may be unfinished.
const PLACES: usize = 2;

impl Uploads {
    /// Room for `numbers` at a time.
    ///
    /// # Errors
    /// The device is no GPU or has no memory left, or the host has none that can be locked.
    pub fn new(device: &Device, numbers: usize) -> Result<Self> {
        let device = device.as_cuda_device()?.clone();
        let kernels = device.cuda_stream();
        let context = kernels.context().clone();
        let copies = context.new_stream().w()?;
        let mut places = Vec::with_capacity(PLACES);
        for _ in 0..PLACES {
            // SAFETY: filled by `upload` before anything reads it. Write-combined memory is only ever written by the processor.
            let host = unsafe { context.alloc_pinned(numbers) }.w()?;
            let place = Place {
                host,
                device: device.alloc_zeros(numbers)?,
                arrived: context.new_event(None).w()?,
                read: context.new_event(None).w()?,
            };
            place.read.record(&kernels).w()?;
            places.push(place);
        }
        Ok(Self { device, copies, places, next: 0 })
    }

    /// Sends these numbers, one part after the other, to the next place, and says which that is. What was there before is gone.
    ///
    /// # Errors
    /// They are more than there is room for, or a device failure.
    pub fn upload(&mut self, parts: &[&[f32]]) -> Result<usize> {
        let (index, count_of_places) = (self.next, self.places.len());
        let Some(place) = self.places.get_mut(index) else { candle_core::bail!("there are no places to upload to") };
        let count: usize = parts.iter().map(|part| part.len()).sum();
        if count == 0 || count > place.host.len() {
            candle_core::bail!("an upload of {count} numbers to a place for {}", place.host.len());
        }
        // The last copy from here must be through, which it has been for a whole batch.
        place.arrived.synchronize().w()?;
        let host = place.host.as_mut_slice().w()?;
        let mut rest = &mut *host;
        for part in parts {
            let (here, behind) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = behind;
        }
        self.copies.wait(&place.read).w()?;
        let (address, _untracked) = place.device.device_ptr_mut(&self.copies);
        // SAFETY: the place has room for `count` numbers on both sides, which nobody touches before `arrived`: the host waits for
        // it above, kernels in `take`. (The safe copy of a part of a slice waits until it is through, which is what must not be.)
        unsafe { result::memcpy_htod_async(address, &host[..count], self.copies.cu_stream()) }.w()?;
        place.arrived.record(&self.copies).w()?;
        self.next = (index + 1) % count_of_places;
        Ok(index)
    }

    /// The first numbers of a place as a new tensor of this shape, for kernels that are launched from now on.
    ///
    /// # Errors
    /// There is no such place, or it is smaller, or a device failure.
    pub fn take(&self, place: usize, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        let count = shape.elem_count();
        let Some(place) = self.places.get(place).filter(|place| count <= place.device.len()) else {
            candle_core::bail!("{count} numbers from a place that has fewer");
        };
        let kernels = self.device.cuda_stream();
        kernels.wait(&place.arrived).w()?;
        // SAFETY: all of it is written by the copy that follows on the same stream.
        let mut numbers = unsafe { self.device.alloc::<f32>(count) }?;
        self.device.memcpy_dtod(&place.device.slice(..count), &mut numbers)?;
        place.read.record(&kernels).w()?;
        let storage = CudaStorage::wrap_cuda_slice(numbers, self.device.clone());
        Ok(Tensor::from_storage(Storage::Cuda(storage), shape, BackpropOp::none(), false))
    }
}

impl std::fmt::Debug for Uploads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uploads").field("next", &self.next).finish_non_exhaustive()
    }
}
