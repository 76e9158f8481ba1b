//! Visual features by what they were computed from, so that a screenshot is encoded once however often it is asked about.

use std::sync::Mutex;

use lru::LruCache;

use super::ScreenshotId;
use crate::geometry::{Region, Size};
use crate::models::SharedFeatures;

/// What features depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FeatureKey {
    /// The screenshot's content.
    pub screenshot: ScreenshotId,
    /// The part of it that the model was shown; `None`: all.
    pub region: Option<Region>,
}

/// Features with the size of the screenshot they belong to, which an answer needs.
#[derive(Debug, Clone)]
pub struct CachedFeatures {
    /// For the engine.
    pub features: SharedFeatures,
    /// Original size of the screenshot.
    pub size: Size,
}

/// Least-recently-used features within a number of bytes. Shared between the CPU pool, which looks, and the engine, which
/// also stores.
#[derive(Debug)]
pub struct FeatureCache {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    entries: LruCache<FeatureKey, CachedFeatures>,
    bytes: usize,
}

impl FeatureCache {
    /// A cache of at most `limit` bytes; zero keeps nothing.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, inner: Mutex::new(Inner { entries: LruCache::unbounded(), bytes: 0 }) }
    }

    /// The features, now the most recently used.
    #[must_use]
    pub fn get(&self, key: &FeatureKey) -> Option<CachedFeatures> {
        self.lock().entries.get(key).cloned()
    }

    /// Keeps features and lets go of the longest unused until all fit. Features larger than the whole cache are not kept.
    pub fn put(&self, key: FeatureKey, value: CachedFeatures) {
        let size = value.features.bytes();
        if size > self.limit {
            return;
        }
        let mut inner = self.lock();
        if let Some(old) = inner.entries.put(key, value) {
            inner.bytes -= old.features.bytes();
        }
        inner.bytes += size;
        while inner.bytes > self.limit {
            let Some((_, old)) = inner.entries.pop_lru() else { break };
            inner.bytes -= old.features.bytes();
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let mut inner = self.lock();
        inner.entries.clear();
        inner.bytes = 0;
    }

    /// Forgets everything without freeing it: what lies on a broken device must not be touched.
    pub fn leak(&self) {
        let mut inner = self.lock();
        std::mem::forget(std::mem::replace(&mut inner.entries, LruCache::unbounded()));
        inner.bytes = 0;
    }

    /// Bytes kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // The lock is held for map operations only, which leave the map whole even if one panics.
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use candle_core::{DType, Device, Tensor};

    use super::*;
    use crate::models::VisualFeatures;

    fn key(n: u8) -> FeatureKey {
        FeatureKey { screenshot: ScreenshotId([n; 16]), region: None }
    }

    fn features(floats: usize) -> CachedFeatures {
        let tensor = Tensor::zeros(floats, DType::F32, &Device::Cpu).unwrap();
        CachedFeatures { features: Arc::new(VisualFeatures { tensor }), size: Size::new(1, 1) }
    }

    #[test]
    fn keeps_the_recently_used_within_its_bytes() {
        let cache = FeatureCache::new(100);
        for n in 0..2 {
            cache.put(key(n), features(10));
        }
        assert!(cache.get(&key(0)).is_some());
        cache.put(key(2), features(10));
        assert!(cache.get(&key(1)).is_none(), "the longest unused goes");
        assert!(cache.get(&key(0)).is_some() && cache.get(&key(2)).is_some());
        assert_eq!(cache.bytes(), 80);
        cache.put(key(2), features(5));
        assert_eq!(cache.bytes(), 60, "a replaced entry is not counted twice");
        cache.put(key(3), features(26));
        assert!(cache.get(&key(3)).is_none(), "what never fits is not kept");
        cache.clear();
        assert_eq!((cache.bytes(), cache.get(&key(0)).is_none()), (0, true));
    }

    #[test]
    fn a_region_is_another_entry() {
        let cache = FeatureCache::new(1000);
        cache.put(key(0), features(1));
        let region = Some(Region { x: 0, y: 0, size: Size::new(1, 1) });
        assert!(cache.get(&FeatureKey { region, ..key(0) }).is_none());
    }
}
