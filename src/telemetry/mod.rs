//! Metric names, their recorder and its text for `/metrics`, and the log subscriber. Anything may count; nothing is decided
//! here.

pub mod gpu;
pub mod names;
pub mod recorder;
pub mod tracing;

pub use names::{Counter, Gauge, Histogram, Outcome, Reason};
pub use recorder::{register, render, upkeep};
