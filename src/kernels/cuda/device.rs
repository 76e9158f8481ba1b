//! Opens a GPU for the thread that will own it, and says what is wrong when that cannot be.

use candle_core::Device;
use candle_core::cuda_backend::cudarc::driver::{CudaContext, DriverError, result, sys};

use super::driver;
use crate::models::device::{Capability, DeviceError};

/// The oldest driver that can run what this toolkit made, as the driver counts: 13.0. PTX is translated by the driver, and an
/// older one does not know the newer language.
const NEEDED: i32 = 13_000;

/// The capability that Candle's kernels were compiled for, where it was said.
const BUILT_FOR: Option<&str> = option_env!("CUDA_COMPUTE_CAP");

/// Opens GPU `number` with a stream of its own, for this thread alone. Everything on it is computed in order on that stream, so
/// that nothing needs to be tracked, and memory once taken from the system is kept for the next batch.
///
/// # Errors
/// The driver is missing or too old, there is no such GPU, or this build is for other ones.
pub fn open(number: usize) -> Result<Device, DeviceError> {
    driver::load().map_err(|message| DeviceError::NoDriver { message: message.to_owned() })?;
    check_driver()?;
    let count = CudaContext::device_count().map_err(failed)?;
    let count = usize::try_from(count).unwrap_or(0);
    if number >= count {
        return Err(DeviceError::NoSuchGpu { number, count });
    }
    let context = CudaContext::new(number).map_err(failed)?;
    let (major, minor) = context.compute_capability().map_err(failed)?;
    let gpu = Capability { major: u32::try_from(major).unwrap_or(0), minor: u32::try_from(minor).unwrap_or(0) };
    if let Some(built) = BUILT_FOR
        && !gpu.runs(built)
    {
        let name = context.name().unwrap_or_else(|_| "the GPU".to_owned());
        return Err(DeviceError::Capability { name, gpu, built: built.to_owned() });
    }
    let device =
        Device::new_cuda_with_stream(number).map_err(|error| DeviceError::Failed { message: error.to_string() })?;
    set_up(&device, &context)?;
    Ok(device)
}

fn check_driver() -> Result<(), DeviceError> {
    let mut version = 0;
    // SAFETY: the pointer is valid for the call; without a driver the function returns an error and writes nothing.
    let answer = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    answer.result().map_err(failed)?;
    if version < NEEDED {
        return Err(DeviceError::OldDriver { has: written(version), needs: written(NEEDED) });
    }
    Ok(())
}

/// `13000` as `13.0`.
fn written(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn set_up(device: &Device, context: &CudaContext) -> Result<(), DeviceError> {
    let cuda = device.as_cuda_device().map_err(|error| DeviceError::Failed { message: error.to_string() })?;
    // SAFETY: the thread that opens the device is the only one that computes on it, on one stream. The second stream, that of
    // uploads, touches buffers of its own and is ordered by events of its own (`upload.rs`).
    unsafe {
        cuda.disable_event_tracking();
    }
    if !context.has_async_alloc() {
        return Ok(());
    }
    let mut keep_all = u64::MAX;
    // SAFETY: the device is one of the driver's, its default pool lives as long as it does, and the setting is a u64.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device()).map_err(failed)?;
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        result::mem_pool::set_attribute(pool, threshold, (&raw mut keep_all).cast()).map_err(failed)
    }
}

fn failed(error: DriverError) -> DeviceError {
    DeviceError::Failed { message: error.to_string() }
}
