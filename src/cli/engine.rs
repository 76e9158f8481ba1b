//! Starts an engine on a model that may have to be downloaded first, and keeps the reason when that fails.

use std::sync::{Arc, Mutex, PoisonError};

use super::progress::Progress;
use super::{Failure, threads};
use crate::config::{Compute, DeviceChoice};
use crate::engine::compute::ComputePool;
use crate::engine::pool::CpuPool;
use crate::engine::{EngineOptions, Handle};
use crate::hub::{self, HubOptions, Source};
use crate::models::checkpoint::FileError;
use crate::models::{self, Checkpoint, LoadError, LoadOptions};

/// An engine that is starting.
pub(super) struct Starting {
    pub handle: Handle,
    failure: Arc<Mutex<Option<Failure>>>,
}

/// The threads that models compute on, one pool for all engines; none when they run on another device.
pub(super) fn compute_pool(compute: &Compute) -> Result<Option<ComputePool>, Failure> {
    if compute.device != DeviceChoice::Cpu {
        return Ok(None);
    }
    let variable = std::env::var(threads::VARIABLE).ok();
    let pool = ComputePool::new(threads::wanted(compute.threads, variable.as_deref()).get());
    pool.map(Some).map_err(|error| Failure::other(error, "lower `--threads`, or raise the limit of processes"))
}

/// Starts an engine. Downloading and loading happen on the engine's own thread, so that this returns at once.
pub(super) fn start(
    source: Source,
    options: EngineOptions,
    compute: &Compute,
    pool: CpuPool,
) -> Result<Starting, Failure> {
    compute.device.check()?;
    let failure = Arc::new(Mutex::new(None));
    let handle = Handle::spawn(options.clone(), pool, {
        let (failure, compute) = (Arc::clone(&failure), compute.clone());
        move || {
            let loaded = fetch(&source).map_err(|error| {
                let file = FileError { file: source.name(), message: error.to_string() };
                keep(&failure, error.into());
                LoadError::File(file)
            });
            let (checkpoint, load) = loaded?;
            let loaded = open(&compute, LoadOptions { name: Some(options.name), ..load })
                .and_then(|load| models::load(&checkpoint, &load));
            loaded.inspect_err(|error| keep(&failure, error.clone().into()))
        }
    });
    let handle = handle.map_err(|error| {
        Failure::other(format!("no thread for the engine: {error}"), "raise the limit of processes")
    })?;
    Ok(Starting { handle, failure })
}

impl Starting {
    /// Why the engine did not start, with what to do about it; once.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn keep(place: &Mutex<Option<Failure>>, failure: Failure) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
}

/// Brings a model here if it is not, and says how to load it. Not for threads of an async runtime.
pub(super) fn fetch(source: &Source) -> Result<(Checkpoint, LoadOptions), hub::HubError> {
    let progress = Progress::new();
    let resolved = hub::resolve(source, &HubOptions::from_environment(), false, &|event| progress.show(event))?;
    Ok((resolved.checkpoint, LoadOptions { manifest: resolved.manifest, ..LoadOptions::default() }))
}

/// Adds the device and the number format. Call it on the thread that will compute.
pub(super) fn open(compute: &Compute, options: LoadOptions) -> Result<LoadOptions, LoadError> {
    let device = compute.device.open().map_err(|error| LoadError::Device { message: error.to_string() })?;
    Ok(LoadOptions { device, precision: compute.dtype, ..options })
}
