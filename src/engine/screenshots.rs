//! The screenshots sent lately, as their files, so that a later command can name one by id instead of sending it again.

use std::sync::Mutex;

use bytes::Bytes;
use lru::LruCache;

use super::ScreenshotId;

/// Least-recently-used image files within a number of bytes.
#[derive(Debug)]
pub struct ScreenshotStore {
    limit: usize,
    inner: Mutex<(LruCache<ScreenshotId, Bytes>, usize)>,
}

impl ScreenshotStore {
    /// A store of at most `limit` bytes; zero keeps nothing.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, inner: Mutex::new((LruCache::unbounded(), 0)) }
    }

    /// The file, now the most recently used.
    #[must_use]
    pub fn get(&self, id: ScreenshotId) -> Option<Bytes> {
        self.lock().0.get(&id).cloned()
    }

    /// Keeps a file that has been decoded once, and lets go of the longest unused until all fit.
    pub fn put(&self, id: ScreenshotId, file: &Bytes) {
        if file.len() > self.limit {
            return;
        }
        let mut inner = self.lock();
        let (files, held) = &mut *inner;
        if files.get(&id).is_some() {
            return;
        }
        // A request's body may be part of a larger buffer; the store must not keep all of that alive.
        files.put(id, Bytes::copy_from_slice(file));
        *held += file.len();
        while *held > self.limit {
            let Some((_, old)) = files.pop_lru() else { break };
            *held -= old.len();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (LruCache<ScreenshotId, Bytes>, usize)> {
        // The lock is held for map operations only, which leave the map whole even if one panics.
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_recent_files_within_its_bytes() {
        let store = ScreenshotStore::new(10);
        let files = [b"aaaa", b"bbbb", b"cccc"].map(|file| Bytes::from_static(file));
        let ids = [1, 2, 3].map(|n| ScreenshotId([n; 16]));
        store.put(ids[0], &files[0]);
        store.put(ids[1], &files[1]);
        assert_eq!(store.get(ids[0]), Some(files[0].clone()));
        store.put(ids[2], &files[2]);
        assert_eq!((store.get(ids[1]), store.get(ids[2])), (None, Some(files[2].clone())));
        store.put(ids[1], &Bytes::from_static(b"much too large"));
        assert_eq!(store.get(ids[1]), None);
    }
}
