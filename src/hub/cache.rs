//! The cache's layout: `models--owner--name/{blobs,refs,snapshots/<commit>}`, as `huggingface_hub` lays it out. It asks no
//! network.

use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Event, HubError, Watch};

/// One repository in the cache.
#[derive(Debug, Clone)]
pub struct Repository {
    root: PathBuf,
    locks: PathBuf,
}

/// The right to write one blob, until dropped. Other processes of Tapline, and of `huggingface_hub`, wait for it.
#[derive(Debug)]
pub(super) struct Lock {
    _file: std::fs::File,
}

impl Repository {
    /// The repository `id` in the cache folder `cache`. Nothing is created.
    #[must_use]
    pub fn new(cache: &Path, id: &str) -> Self {
        let folder = format!("models--{}", id.replace('/', "--"));
        Self { root: cache.join(&folder), locks: cache.join(".locks").join(folder) }
    }

    /// The folder that is loaded: the files of one commit.
    #[must_use]
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// A file of a commit, if it is there and whole.
    #[must_use]
    pub fn file(&self, commit: &str, file: &str) -> Option<PathBuf> {
        Some(self.snapshot(commit).join(file)).filter(|path| path.is_file())
    }

    /// The commit that a branch last pointed to.
    #[must_use]
    pub fn commit_of(&self, revision: &str) -> Option<String> {
        let commit = fs_err::read_to_string(self.root.join("refs").join(revision)).ok()?;
        Some(commit.trim().to_owned()).filter(|commit| super::source::is_commit(commit))
    }

    /// Remembers the commit that a branch points to.
    pub(super) fn remember(&self, revision: &str, commit: &str) -> std::io::Result<()> {
        replace(&self.root.join("refs").join(revision), commit.as_bytes())
    }

    /// The commit is known not to have this file.
    #[must_use]
    pub fn is_absent(&self, commit: &str, file: &str) -> bool {
        self.root.join(".no_exist").join(commit).join(file).is_file()
    }

    pub(super) fn mark_absent(&self, commit: &str, file: &str) -> std::io::Result<()> {
        replace(&self.root.join(".no_exist").join(commit).join(file), b"")
    }

    /// The content with this tag.
    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(etag)
    }

    /// The part of it that has arrived.
    pub(super) fn incomplete(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(format!("{etag}.incomplete"))
    }

    /// Waits for the right to write a blob.
    pub(super) async fn lock(&self, etag: &str, file: &str, watch: Watch<'_>) -> Result<Lock, HubError> {
        fs_err::create_dir_all(&self.locks)?;
        let path = self.locks.join(format!("{etag}.lock"));
        let lock = fs_err::OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        let (lock, _) = lock.into_parts();
        let mut told = false;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Lock { _file: lock }),
                // Some network file systems have no locks. Two pulls at once then do the work twice, and since each
                // checks what it wrote before it is named, none is harmed.
                Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => {
                    return Ok(Lock { _file: lock });
                }
                Err(TryLockError::Error(error)) => return Err(error.into()),
                Err(TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut told, true) {
                        watch(Event::Waiting { file });
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Makes a whole blob a file of a commit.
    pub(super) fn link(&self, commit: &str, file: &str, etag: &str) -> std::io::Result<()> {
        let path = self.snapshot(commit).join(file);
        if let Some(folder) = path.parent() {
            fs_err::create_dir_all(folder)?;
        }
        // Made under another name and moved, so that nobody ever sees the file absent or half-copied.
        let temporary = path.with_file_name(format!(".{etag}.{}.new", std::process::id()));
        let _left_over = fs_err::remove_file(&temporary);
        // `snapshots/<commit>/file` is two folders below the one that holds `blobs`, and one more for each in `file`.
        let up = "../".repeat(2 + file.matches('/').count());
        // Relative, so that the cache can be moved.
        fs_err::os::unix::fs::symlink(format!("{up}blobs/{etag}"), &temporary)?;
        fs_err::rename(&temporary, &path)
    }
}

/// Writes a small file whole or not at all.
fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs_err::create_dir_all(folder)?;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    fs_err::write(&temporary, content)?;
    fs_err::rename(&temporary, path)
}

/// Bytes free for this user on the disk of a folder, or of the nearest folder above it that exists.
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    let folder = folder.ancestors().find(|folder| folder.is_dir())?;
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_commit_are_links_to_content() {
        let cache = tempfile::tempdir().unwrap();
        let repository = Repository::new(cache.path(), "owner/name");
        let blob = repository.blob("abc");
        fs_err::create_dir_all(blob.parent().unwrap()).unwrap();
        fs_err::write(&blob, "content").unwrap();
        let commit = "0".repeat(40);
        for file in ["a.json", "deep/er/a.json"] {
            assert_eq!(repository.file(&commit, file), None);
            repository.link(&commit, file, "abc").unwrap();
            repository.link(&commit, file, "abc").unwrap();
            assert_eq!(fs_err::read_to_string(repository.file(&commit, file).unwrap()).unwrap(), "content");
        }
        fs_err::remove_file(blob).unwrap();
        assert_eq!(repository.file(&commit, "a.json"), None, "a link to nothing is no file");
    }

    #[test]
    fn branches_and_absent_files_are_remembered() {
        let cache = tempfile::tempdir().unwrap();
        let repository = Repository::new(cache.path(), "owner/name");
        let commit = "a1".repeat(20);
        assert_eq!(repository.commit_of("main"), None);
        repository.remember("main", &commit).unwrap();
        assert_eq!(repository.commit_of("main").as_deref(), Some(commit.as_str()));
        assert!(!repository.is_absent(&commit, "x.json"));
        repository.mark_absent(&commit, "x.json").unwrap();
        assert!(repository.is_absent(&commit, "x.json"));
    }
}
