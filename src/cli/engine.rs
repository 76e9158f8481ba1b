//! Starts an engine on a model that may have to be downloaded first, and keeps the reason when that fails.

use std::sync::{Arc, Mutex, PoisonError};

use super::progress::Progress;
use super::{Failure, threads};
use crate::config::{Compute, DeviceChoice};
use crate::engine::compute::ComputePool;
use crate::engine::pool::CpuPool;
use crate::engine::{EngineOptions, Handle, Load};
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
    if compute.device.iter().any(|device| *device != DeviceChoice::Cpu) {
        return Ok(None);
    }
    let variable = std::env::var(threads::VARIABLE).ok();
    let pool = ComputePool::new(threads::wanted(compute.threads, variable.as_deref()).get());
    pool.map(Some).map_err(|error| Failure::other(error, "lower `--threads`, or raise the limit of processes"))
}

/// Starts an engine. Downloading and loading happen on the engine's own thread, so that this returns at once.
/// Starts an engine on each device. Downloading and loading happen on the engines' own threads, so that this returns at once.
pub(super) fn start(
    source: &Source,
    options: EngineOptions,
    compute: &Compute,
    pool: CpuPool,
) -> Result<Starting, Failure> {
    compute.check()?;
    let failure = Arc::new(Mutex::new(None));
    // Brought here once; the engines that come later find it.
    let fetched = Arc::new(Mutex::new(None));
    let load_on = |device: DeviceChoice| -> Load {
        let (failure, fetched) = (Arc::clone(&failure), Arc::clone(&fetched));
        let (source, compute, name) = (source.clone(), compute.clone(), options.name.clone());
        Box::new(move || {
            let (checkpoint, load) = fetch_once(&source, &fetched).map_err(|error| {
                let file = FileError { file: source.name(), message: error.to_string() };
                keep(&failure, error.into());
                LoadError::File(file)
            })?;
            let loaded = open(&compute, device, LoadOptions { name: Some(name), ..load })
                .and_then(|load| models::load(&checkpoint, &load));
            loaded.inspect_err(|error| keep(&failure, error.clone().into()))
        })
    };
    let loads = compute.device.iter().copied().map(load_on).collect();
    let handle = Handle::spawn_each(options, pool, loads).map_err(|error| {
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

/// Keeps the first failure: those of other engines are mostly its echo.
fn keep(place: &Mutex<Option<Failure>>, failure: Failure) {
    place.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
}

type Fetched = (Checkpoint, LoadOptions);

fn fetch_once(source: &Source, fetched: &Mutex<Option<Fetched>>) -> Result<Fetched, hub::HubError> {
    let mut fetched = fetched.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(fetched) = &*fetched {
        return Ok(fetched.clone());
    }
    Ok(fetched.insert(fetch(source)?).clone())
}

/// Brings a model here if it is not, and says how to load it. Not for threads of an async runtime.
pub(super) fn fetch(source: &Source) -> Result<Fetched, hub::HubError> {
    let progress = Progress::new();
    let resolved = hub::resolve(source, &HubOptions::from_environment(), false, &|event| progress.show(event))?;
    Ok((resolved.checkpoint, LoadOptions { manifest: resolved.manifest, ..LoadOptions::default() }))
}

/// Adds the device and the number format. Call it on the thread that will compute.
pub(super) fn open(compute: &Compute, device: DeviceChoice, options: LoadOptions) -> Result<LoadOptions, LoadError> {
    let (device, graphs) = (device.open()?, !compute.no_graphs);
    Ok(LoadOptions { device, precision: compute.dtype, graphs, ..options })
}
