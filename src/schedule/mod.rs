//! Who may enter, who waits, and who runs together. Pure data and decisions: no model, no HTTP, no I/O.

pub mod admission;
pub mod batcher;
pub mod ticket;

pub use admission::{Admission, AdmissionError, Permit};
pub use batcher::{Batch, Policy, next_batch};
pub use ticket::{Ticket, Weight};
