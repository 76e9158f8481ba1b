//! Models that are downloaded: from a name to a checkpoint on this machine, through a cache laid out like
//! `huggingface_hub`'s, so that both find each other's files. It knows no terminal; whoever waits is told by [`Event`]s.
//!
//! A file takes its final name only when it is whole and its hash is right, and a snapshot only links to such files:
//! nothing half-written is ever loaded.

mod cache;
mod error;
mod fetch;
mod options;
mod remote;
mod source;

pub use cache::Repository;
pub(crate) use cache::free_bytes;
pub use error::HubError;
pub use fetch::{Fetch, Fetched};
pub use options::{HubOptions, Token};
pub use source::{Resolved, Source, resolve};

use std::time::Duration;

/// What happens during a download, for whoever waits for it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Another process downloads this file; it is waited for.
    Waiting {
        /// Path in the repository.
        file: &'a str,
    },
    /// A file begins, or goes on after an interruption.
    Begin {
        /// Path in the repository.
        file: &'a str,
        /// Its length, where the hub says.
        total: Option<u64>,
        /// Bytes that are here already.
        already: u64,
    },
    /// So many more bytes have arrived.
    Bytes(u64),
    /// The file is whole and checked.
    End {
        /// Path in the repository.
        file: &'a str,
    },
    /// Something went wrong that may pass.
    Retry {
        /// What.
        reason: &'a HubError,
        /// Until the next attempt.
        after: Duration,
    },
    /// The hub cannot be asked what the branch points to now; the commit that it last pointed to is used.
    Stale {
        /// The branch.
        revision: &'a str,
        /// The commit.
        commit: &'a str,
    },
}

/// Who is told about [`Event`]s.
pub type Watch<'a> = &'a (dyn Fn(Event<'_>) + Sync);
