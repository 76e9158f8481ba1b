//! One binary for all tests that look at Tapline from outside.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod allocations;
mod batching;
mod cli;
mod connection;
mod devices;
mod errors;
mod fault;
mod health;
mod hub;
mod kernels_cuda;
mod locate;
mod metrics;
mod overload;
mod parity;
mod pocket;
mod reference;
mod screenshot;
mod shutdown;
mod support;
