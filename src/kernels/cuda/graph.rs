//! CUDA graphs: work on a device that is recorded once and then launched as a whole. A small batch is limited by the processor
//! that launches hundreds of kernels one after the other; a graph is one launch.
//!
//! A graph replays kernels with the addresses and sizes they were recorded with. What it reads and writes must lie in tensors
//! that stay where they are, and what changes between replays must be a number in such a tensor.

use std::panic::{AssertUnwindSafe, catch_unwind};

use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::{CudaGraph, sys};
use candle_core::{Device, Error, Result};

/// Work that has been recorded.
pub struct Graph {
    graph: CudaGraph,
}

// SAFETY: the driver's graph belongs to no thread, it only must not be used by two at once. `replay` takes the graph by `&mut`.
unsafe impl Send for Graph {}
// SAFETY: there is nothing to do with a shared graph.
unsafe impl Sync for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graph").finish_non_exhaustive()
    }
}

impl Graph {
    /// Does `work` once, so that kernels are loaded and small uploads are known, and then records it without doing it. Uploads of
    /// the recorded run become constants of the graph, larger ones and copies to the host are errors.
    ///
    /// # Errors
    /// The work failed, or something in it cannot be recorded. The device can still be used.
    pub fn record(device: &Device, work: impl Fn() -> Result<()>) -> Result<Self> {
        let cuda = device.as_cuda_device()?;
        let stream = cuda.cuda_stream();
        let _small_uploads_are_kept = cuda.enable_cuda_graph_htod_cache();
        work()?;
        device.synchronize()?;
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).w()?;
        // Whatever happens, the stream must stop recording.
        let worked = catch_unwind(AssertUnwindSafe(&work));
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let ended = stream.end_capture(flags);
        worked.unwrap_or_else(|_| Err(Error::Msg("a panic while a CUDA graph was recorded".to_owned())))?;
        let graph = ended.w()?.ok_or_else(|| Error::Msg("the driver recorded no CUDA graph".to_owned()))?;
        graph.upload().w()?;
        Ok(Self { graph })
    }

    /// Puts the work on the device's stream, and does not wait for it.
    ///
    /// # Errors
    /// A device failure.
    pub fn replay(&mut self) -> Result<()> {
        self.graph.launch().w()
    }
}
