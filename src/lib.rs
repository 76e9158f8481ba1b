//! Tapline serves GUI grounding models: a screenshot and a command ("click on the Gmail icon") go in, the point to press and
//! the box around it come out, in the caller's pixels.
//!
//! # The way of a request
//! 1. [`server`] admits before it decodes: permits, body size, and the pixel count from the image's header
//!    ([`schedule::admission`], [`screenshot::sniff()`]).
//! 2. On a bounded CPU pool ([`engine::pool`]), never on a thread of the async runtime, [`screenshot`] decodes, resizes and
//!    normalises, and [`prompt`] tokenises ([`engine::prepare`]).
//! 3. [`schedule`] holds the ticket. A batch forms whenever the engine is free; tickets whose callers have gone or whose
//!    time is up are dropped before they cost anything.
//! 4. The [`engine`]'s thread owns one model on one device; on a CPU, its batches run on threads that all engines share
//!    ([`engine::compute`]). It encodes each distinct screenshot once, or finds its visual features in the cache
//!    ([`engine::features`]), then answers all commands of the batch ([`engine::generate`]). The next batch is formed
//!    meanwhile.
//! 5. [`prompt`] finds the place in the answer and [`geometry`] maps it to the original pixels ([`engine::grounding`]).
//! 6. The reply says where the time went; [`telemetry`] has the histograms.
//!
//! # Who depends on whom
//! `cli` → `server` → `engine` → `schedule`, `models` → `kernels`, `prompt`, `screenshot` → `geometry`. Nothing below `server`
//! knows HTTP; nothing above `engine` knows tensors. [`telemetry`] and [`hub`] stand beside: anything may count, and only
//! the command line downloads.

pub mod cli;
pub mod config;
pub mod engine;
pub mod geometry;
pub mod hub;
pub mod kernels;
pub mod models;
pub mod prompt;
pub mod schedule;
pub mod screenshot;
pub mod server;
pub mod telemetry;
