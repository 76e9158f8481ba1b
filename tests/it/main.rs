//! One binary for all tests that look at Tapline from outside.

mod batching;
mod connection;
mod cli;
mod errors;
mod health;
mod hub;
mod locate;
mod metrics;
mod overload;
mod parity;
mod shutdown;
mod support;
