//! Why a model cannot be had.

use std::path::PathBuf;

/// Why a model is not on this machine and cannot be brought here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Not a name, id or folder. Check the spelling.
    #[error("`{model}` is no known model, no hub id (`owner/name`) and no folder")]
    UnknownModel {
        /// What was asked for.
        model: String,
    },
    /// A revision was asked of a model that has none.
    #[error("`{model}` is not downloaded, so it has no revision")]
    NoRevision {
        /// What was asked for.
        model: String,
    },
    /// The hub may not be asked, and the cache lacks a file. Pull the model while online.
    #[error("`{file}` of {id} is not in the cache `{}`, and HF_HUB_OFFLINE forbids asking the hub", cache.display())]
    Offline {
        /// Owner and repository.
        id: String,
        /// The first file that is missing, or the revision whose commit is not known.
        file: String,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// The hub wants a token, or another one.
    #[error("the hub refuses access to {id} (HTTP {status}) {}", if *token { "with this token" } else { "without a token" })]
    Denied {
        /// Owner and repository.
        id: String,
        /// 401 or 403.
        status: u16,
        /// Whether a token was sent.
        token: bool,
    },
    /// The repository, the revision or the file does not exist.
    #[error("the hub has no {what} in {id}")]
    NotFound {
        /// Owner and repository.
        id: String,
        /// What is missing.
        what: String,
    },
    /// The hub answers with another commit than the one asked for.
    #[error("the hub answers with commit {got} of {id} where {expected} is pinned")]
    Revision {
        /// Owner and repository.
        id: String,
        /// The pinned commit.
        expected: String,
        /// The hub's.
        got: String,
    },
    /// The content is not the expected one. The bad file has been deleted.
    #[error("`{file}` has the SHA-256 {got} where {expected} is expected")]
    Checksum {
        /// Path in the repository.
        file: String,
        /// By the manifest, or by the hub.
        expected: String,
        /// Of what arrived.
        got: String,
    },
    /// The content has another length than expected. The bad file has been deleted.
    #[error("`{file}` has {got} bytes where {expected} are expected")]
    Length {
        /// Path in the repository.
        file: String,
        /// By the manifest, or by the hub.
        expected: u64,
        /// Of what arrived.
        got: u64,
    },
    /// There is not enough room. What has arrived stays, under a name that is never loaded, for the next attempt.
    #[error("the disk of `{}` is full: {}", folder.display(), needed(*needed_bytes, *free))]
    DiskFull {
        /// The cache.
        folder: PathBuf,
        /// Bytes still to come, where the hub says.
        needed_bytes: Option<u64>,
        /// Bytes free, where the system says.
        free: Option<u64>,
    },
    /// The hub answers with an error.
    #[error("the hub answers HTTP {status} to `{url}`")]
    Http {
        /// Without its query, which may hold a signature.
        url: String,
        /// The status.
        status: u16,
    },
    /// The hub cannot be reached, or the connection broke.
    #[error("the connection to `{url}` failed: {message}")]
    Network {
        /// Without its query.
        url: String,
        /// What the system said.
        message: String,
    },
    /// The hub says something that makes no sense.
    #[error("the hub's answer to `{url}` makes no sense: {message}")]
    Reply {
        /// Without its query.
        url: String,
        /// What is wrong with it.
        message: String,
    },
    /// The cache cannot be read or written.
    #[error(transparent)]
    File(#[from] std::io::Error),
}

fn needed(bytes: Option<u64>, free: Option<u64>) -> String {
    match (bytes, free) {
        (Some(bytes), Some(free)) => format!("{bytes} bytes are still to come, {free} are free"),
        (Some(bytes), None) => format!("{bytes} bytes are still to come"),
        (None, _) => "no more bytes fit".to_owned(),
    }
}

impl HubError {
    /// The same request may succeed in a moment.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Http { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Network { .. } => true,
            _ => false,
        }
    }

    /// The hub did not answer at all, so that what is in the cache is the best there is.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.is_transient()
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownModel { .. } => {
                let names: Vec<String> = crate::models::Manifest::built_in().into_iter().map(|one| one.name).collect();
                format!("known models are `pocket` and `{}`; a folder must exist", names.join("`, `"))
            }
            Self::NoRevision { .. } => "leave `--revision` out, or name a hub model".to_owned(),
            Self::Offline { .. } => {
                "unset HF_HUB_OFFLINE, or run `tapline pull` where the hub can be reached and copy \
                                     the cache here"
                    .to_owned()
            }
            Self::Denied { token: false, .. } => {
                "set HF_TOKEN to a token that may read it; the hub also answers so for names that do not exist"
                    .to_owned()
            }
            Self::Denied { token: true, .. } => {
                "accept the model's conditions on its page, or set HF_TOKEN to a token that may read it".to_owned()
            }
            Self::NotFound { .. } => "check the id and `--revision`".to_owned(),
            Self::Revision { .. } => "check HF_ENDPOINT: a mirror must serve the pinned commit".to_owned(),
            Self::Checksum { .. } | Self::Length { .. } => {
                "pull again; if it stays so, the repository or the mirror in HF_ENDPOINT has other content".to_owned()
            }
            Self::DiskFull { .. } => "make room, or point HF_HOME to a larger disk; the download will go on where it \
                                      stopped"
                .to_owned(),
            Self::Http { status: 429, .. } => "the hub is limiting requests: wait, or set HF_TOKEN".to_owned(),
            Self::Http { .. } | Self::Network { .. } => {
                "check the network, HTTPS_PROXY and HF_ENDPOINT; what has arrived is kept, so run it again".to_owned()
            }
            Self::Reply { .. } => "check HF_ENDPOINT: is it a model hub?".to_owned(),
            Self::File(_) => "HF_HOME says where the cache is; it must be writable".to_owned(),
        }
    }
}
