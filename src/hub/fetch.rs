//! Brings the files of one commit into the cache: resumed where a download broke off, checked before they get their name.

use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use reqwest::header::CONTENT_RANGE;
use reqwest::{StatusCode, Version};
use sha2::{Digest, Sha256};

use super::cache::free_bytes;
use super::remote::{Metadata, Remote, interrupted, is_sha256, shown};
use super::{Event, HubError, HubOptions, Repository, Watch};
use crate::models::manifest::HubFile;

/// Progress that makes up for a failed attempt: a connection that breaks every few megabytes still gets there.
const WORTHWHILE: u64 = 1 << 20;

/// Files of one commit, to be brought into the cache.
#[derive(Debug, Clone, Copy)]
pub struct Fetch<'a> {
    /// Owner and repository.
    pub id: &'a str,
    /// Full commit hash.
    pub commit: &'a str,
    /// What to bring.
    pub files: &'a [HubFile],
    /// Hash files that are in the cache already, too.
    pub verify: bool,
}

/// What was brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The folder with the files.
    pub folder: PathBuf,
    /// Bytes that had to be downloaded.
    pub downloaded: u64,
}

impl Fetch<'_> {
    /// Brings what is not there yet.
    ///
    /// # Errors
    /// [`HubError`] says what stands in the way. Whatever it is, nothing half-written is in the folder.
    pub async fn run(&self, options: &HubOptions, watch: Watch<'_>) -> Result<Fetched, HubError> {
        let repository = Repository::new(&options.cache, self.id);
        let mut downloaded = 0;
        let mut remote = None;
        for file in self.files {
            if self.is_here(&repository, file, options)?
                || (file.optional && repository.is_absent(self.commit, &file.path))
            {
                continue;
            }
            if options.offline {
                if file.optional {
                    continue;
                }
                return Err(HubError::Offline {
                    id: self.id.to_owned(),
                    file: file.path.clone(),
                    cache: options.cache.clone(),
                });
            }
            let remote = match &remote {
                Some(remote) => remote,
                None => remote.insert(Remote::new(options)?),
            };
            downloaded +=
                Download { fetch: *self, file, remote, options, repository: &repository, watch }.run().await?;
        }
        Ok(Fetched { folder: repository.snapshot(self.commit), downloaded })
    }

    /// Whether a file is in the cache as it should be. One that is not, and can be had again, is taken out of it.
    fn is_here(&self, repository: &Repository, file: &HubFile, options: &HubOptions) -> Result<bool, HubError> {
        let Some(path) = repository.file(self.commit, &file.path) else { return Ok(false) };
        let bytes = fs_err::metadata(&path)?.len();
        let blob = fs_err::canonicalize(&path)?;
        // Without a manifest, the hub's word for large files is the name of what the link points to.
        let name = blob.file_name().unwrap_or_default().to_string_lossy();
        let expected = file.sha256.as_deref().or_else(|| is_sha256(&name).then_some(&*name));
        let right = file.bytes.is_none_or(|expected| expected == bytes)
            && match expected {
                Some(expected) if self.verify => expected.eq_ignore_ascii_case(&hash(&path)?),
                _ => true,
            };
        if !right && !options.offline {
            // The link, and what it points to.
            fs_err::remove_file(&path)?;
            let _gone = fs_err::remove_file(&blob);
        }
        Ok(right)
    }
}

/// One file on its way.
struct Download<'a> {
    fetch: Fetch<'a>,
    file: &'a HubFile,
    remote: &'a Remote<'a>,
    options: &'a HubOptions,
    repository: &'a Repository,
    watch: Watch<'a>,
}

impl Download<'_> {
    /// Bytes that were downloaded.
    async fn run(&self) -> Result<u64, HubError> {
        let (id, commit, file) = (self.fetch.id, self.fetch.commit, self.file.path.as_str());
        let metadata = match self.metadata().await {
            Err(HubError::NotFound { .. }) if self.file.optional => {
                self.repository.mark_absent(commit, file)?;
                return Ok(0);
            }
            metadata => metadata?,
        };
        if let Some(got) = metadata.commit.as_ref().filter(|got| *got != commit) {
            return Err(HubError::Revision { id: id.to_owned(), expected: commit.to_owned(), got: got.clone() });
        }
        // The hub names its content: what is not the pinned one need not be downloaded to know it.
        if let (Some(expected), Some(got)) = (&self.file.sha256, metadata.sha256())
            && expected != got
        {
            return Err(HubError::Checksum { file: file.to_owned(), expected: expected.clone(), got: got.to_owned() });
        }
        if let (Some(expected), Some(got)) = (self.file.bytes, metadata.bytes)
            && expected != got
        {
            return Err(HubError::Length { file: file.to_owned(), expected, got });
        }
        let _lock = self.repository.lock(&metadata.etag, file, self.watch).await?;
        let blob = self.repository.blob(&metadata.etag);
        let mut downloaded = 0;
        if !blob.is_file() {
            downloaded = self.content(&metadata).await?;
            fs_err::rename(self.repository.incomplete(&metadata.etag), &blob)?;
        }
        self.repository.link(commit, file, &metadata.etag)?;
        Ok(downloaded)
    }

    async fn metadata(&self) -> Result<Metadata, HubError> {
        let mut failed = 0;
        loop {
            match self.remote.metadata(self.fetch.id, self.fetch.commit, &self.file.path).await {
                Err(error) if error.is_transient() => pause(self.options, &mut failed, error, self.watch).await?,
                result => return result,
            }
        }
    }

    /// Fills the blob's `.incomplete` until it is whole and right.
    async fn content(&self, metadata: &Metadata) -> Result<u64, HubError> {
        let path = self.repository.incomplete(&metadata.etag);
        if let Some(folder) = path.parent() {
            fs_err::create_dir_all(folder)?;
        }
        let total = self.file.bytes.or(metadata.bytes);
        let start = length(&path);
        (self.watch)(Event::Begin { file: &self.file.path, total, already: start });
        let (mut failed, mut downloaded) = (0, 0);
        loop {
            let before = length(&path);
            match self.stream(&path, total).await {
                Ok(bytes) => {
                    downloaded += bytes;
                    break;
                }
                Err(error) if error.is_transient() => {
                    let progress = length(&path).saturating_sub(before);
                    downloaded += progress;
                    if progress >= WORTHWHILE {
                        failed = 0;
                    }
                    pause(self.options, &mut failed, error, self.watch).await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.check(&path, total, metadata).inspect_err(|_| {
            let _gone = fs_err::remove_file(&path);
        })?;
        (self.watch)(Event::End { file: &self.file.path });
        Ok(downloaded)
    }

    /// One connection: asks for what is missing and appends it.
    async fn stream(&self, path: &Path, total: Option<u64>) -> Result<u64, HubError> {
        let mut here = length(path);
        if total.is_some_and(|total| here > total) {
            fs_err::remove_file(path)?;
            here = 0;
        }
        if total == Some(here) && here > 0 {
            return Ok(0);
        }
        if let (Some(total), Some(free)) = (total, free_bytes(&self.options.cache))
            && total - here > free
        {
            return Err(self.full(Some(total), here, Some(free)));
        }
        let url = self.remote.file_url(self.fetch.id, self.fetch.commit, &self.file.path)?;
        let mut response = self.remote.bytes(self.fetch.id, url.clone(), &self.file.path, here).await?;
        if here > 0 && !continues(&response, here) {
            // The hub sends it all again, or has nothing beyond what is here although more is expected.
            fs_err::remove_file(path)?;
            if response.status() == StatusCode::RANGE_NOT_SATISFIABLE {
                let message = "it cannot go on from where the download broke off".to_owned();
                return Err(HubError::Network { url: shown(&url), message });
            }
            here = 0;
            (self.watch)(Event::Begin { file: &self.file.path, total, already: 0 });
        }
        let total = total.or_else(|| response.content_length().map(|rest| here + rest));
        if total.is_none() && response.version() < Version::HTTP_11 {
            // Its end would look like any broken connection.
            let message = "it says no length".to_owned();
            return Err(HubError::Reply { url: shown(&url), message });
        }
        let written = |error: std::io::Error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => self.full(total, here, None),
            _ => HubError::File(error),
        };
        let mut file = fs_err::OpenOptions::new().create(true).append(true).open(path)?;
        let mut bytes = 0;
        while let Some(part) = response.chunk().await.map_err(|error| interrupted(&url, &error))? {
            file.write_all(&part).map_err(written)?;
            bytes += part.len() as u64;
            (self.watch)(Event::Bytes(part.len() as u64));
            if total.is_some_and(|total| here + bytes > total) {
                break; // What follows is not wanted, and may be endless.
            }
        }
        // Whole on the disk before it gets its name: after a power cut a name must not stand for a hole.
        file.sync_all().map_err(written)?;
        match total {
            Some(total) if here + bytes < total => {
                Err(HubError::Network { url: shown(&url), message: "the connection ended early".to_owned() })
            }
            _ => Ok(bytes),
        }
    }

    fn full(&self, total: Option<u64>, here: u64, free: Option<u64>) -> HubError {
        let needed_bytes = total.map(|total| total.saturating_sub(here));
        HubError::DiskFull { folder: self.options.cache.clone(), needed_bytes, free }
    }

    fn check(&self, path: &Path, total: Option<u64>, metadata: &Metadata) -> Result<(), HubError> {
        let file = || self.file.path.clone();
        let got = length(path);
        if let Some(expected) = total.filter(|&total| total != got) {
            return Err(HubError::Length { file: file(), expected, got });
        }
        let Some(expected) = self.file.sha256.as_deref().or(metadata.sha256()) else { return Ok(()) };
        let got = hash(path)?;
        if !expected.eq_ignore_ascii_case(&got) {
            return Err(HubError::Checksum { file: file(), expected: expected.to_owned(), got });
        }
        Ok(())
    }
}

/// Whether an answer is the part of the file from `start` on.
fn continues(response: &reqwest::Response, start: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok()).unwrap_or_default();
    response.status() == StatusCode::PARTIAL_CONTENT && range.starts_with(&format!("bytes {start}-"))
}

/// Waits before the next attempt, or gives up.
pub(super) async fn pause(
    options: &HubOptions,
    failed: &mut u32,
    reason: HubError,
    watch: Watch<'_>,
) -> Result<(), HubError> {
    *failed += 1;
    if *failed >= options.attempts {
        return Err(reason);
    }
    let after = options.backoff * 2_u32.pow((*failed - 1).min(5));
    watch(Event::Retry { reason: &reason, after });
    tokio::time::sleep(after).await;
    Ok(())
}

fn length(path: &Path) -> u64 {
    fs_err::metadata(path).map_or(0, |metadata| metadata.len())
}

fn hash(path: &Path) -> std::io::Result<String> {
    let mut hasher = Sha256::new();
    let mut file = fs_err::File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
    }
    Ok(format!("{:x}", hasher.finalize()))
}
