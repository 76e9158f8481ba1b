//! The engine thread's sign of life. The thread writes it before and after each step; anybody reads it without waiting.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Written by the engine thread only.
#[derive(Debug)]
pub struct Heartbeat {
    start: Instant,
    /// Milliseconds after `start` of the last sign.
    last: AtomicU64,
    busy: AtomicBool,
}

/// What a probe sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pulse {
    /// A step is running. Busy is not dead.
    pub busy: bool,
    /// Time since the last sign.
    pub age: Duration,
}

impl Pulse {
    /// Whether the thread is well: it waits for work, or its step has not taken longer than any step may.
    #[must_use]
    pub fn is_alive(self, stall_threshold: Duration) -> bool {
        !self.busy || self.age < stall_threshold
    }
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0), busy: AtomicBool::new(false) }
    }
}

impl Heartbeat {
    /// A step begins.
    pub fn begin(&self) {
        self.beat(true);
    }

    /// The step has ended.
    pub fn end(&self) {
        self.beat(false);
    }

    fn beat(&self, busy: bool) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Release);
        self.busy.store(busy, Ordering::Release);
    }

    /// The state now.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        let last = Duration::from_millis(self.last.load(Ordering::Acquire));
        Pulse { busy: self.busy.load(Ordering::Acquire), age: self.start.elapsed().saturating_sub(last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_not_dead_until_the_threshold() {
        let heartbeat = Heartbeat::default();
        assert!(heartbeat.pulse().is_alive(Duration::ZERO), "an idle engine is alive however long it idles");
        heartbeat.begin();
        assert!(heartbeat.pulse().is_alive(Duration::from_secs(60)));
        assert!(!heartbeat.pulse().is_alive(Duration::ZERO));
        heartbeat.end();
        assert!(heartbeat.pulse().is_alive(Duration::ZERO));
    }
}
