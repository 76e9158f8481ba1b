//! One thread per model and device: it owns the weights, runs batches, and never waits for anybody. Devices of one model stand
//! behind one queue. Callers hold a [`Handle`], which prepares requests on a CPU pool, queues them, and turns tokens back into pixels.
//!
//! Nothing here knows HTTP; nothing above here knows tensors.

mod ahead;
pub mod compute;
pub mod error;
pub mod fault;
pub mod features;
pub mod generate;
pub mod grounding;
pub mod handle;
pub mod heartbeat;
pub mod pool;
pub mod prepare;
mod queue;
pub mod request;
pub mod screenshots;
pub mod simulated;
mod warm_up;
mod worker;

pub use error::{EngineError, LocateError};
pub use handle::{EngineOptions, Handle, Load, State};
pub use heartbeat::Pulse;
pub use request::{
    Alternative, BoxSource, Grounding, ImageSource, Reply, Request, ScreenshotId, ScreenshotInfo, Timings, Want,
};
