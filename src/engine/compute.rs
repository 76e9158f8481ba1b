//! The CPU threads on which models compute: one for each processor that the process may use, each kept to its own. Engines
//! share them and take turns, a batch at a time: a batch keeps all of them busy.
//!
//! Requests are prepared on other threads ([`super::pool`]), as many again, which have the lowest priority: beside a thread
//! that computes, the system gives them a hundredth of a processor's time, and all of it while nobody computes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::pool::PoolError;

/// The threads. Clones share them.
#[derive(Debug, Clone)]
pub struct ComputePool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    threads: rayon::ThreadPool,
    turns: Turns,
    pinning: Pinning,
}

/// Whether the threads of a pool are kept to processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinning {
    /// Each has a processor of its own.
    Own,
    /// The process may use another number of processors than there are threads. With more, they may well be lent by time, as
    /// containers' are, and whoever pins to the first of them crowds those; with fewer, threads must share.
    NotEqual {
        /// Processors that the process may use.
        processors: usize,
    },
    /// The system cannot do it, or does not let us.
    NotPossible,
}

impl ComputePool {
    /// A pool of `threads` threads. They may use the processors that the calling thread may use.
    ///
    /// # Errors
    /// The system gives no threads.
    pub fn new(threads: usize) -> Result<Self, PoolError> {
        let threads = threads.max(1);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("compute-{index}"))
            .build()
            .map_err(|error| PoolError::new(&error))?;
        let pinning = match processors() {
            None => Pinning::NotPossible,
            Some(processors) if processors.len() != threads => Pinning::NotEqual { processors: processors.len() },
            Some(processors) => {
                // A thread may use what the one that started it may: Candle's own are started before any is pinned.
                candle_core::utils::barrier_pool();
                let pinned = pool.broadcast(|thread| processors.get(thread.index()).is_some_and(|&at| pin(at)));
                if pinned.iter().all(|&pinned| pinned) { Pinning::Own } else { Pinning::NotPossible }
            }
        };
        Ok(Self { inner: Arc::new(Inner { threads: pool, turns: Turns::default(), pinning }) })
    }

    /// How many threads there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.inner.threads.current_num_threads()
    }

    /// Whether they are kept to processors.
    #[must_use]
    pub fn pinning(&self) -> Pinning {
        self.inner.pinning
    }

    /// Runs `work` on one of the threads, with the others there for what it shares out, once those who asked before have
    /// finished. A panic is passed on.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        // Otherwise a thread that waits for its part of one batch could begin with all of another.
        let _turn = self.inner.turns.take();
        self.inner.threads.install(work)
    }
}

/// Turns in the order in which they were asked for. A bare mutex would let an engine with a full queue have it every time.
#[derive(Debug, Default)]
struct Turns {
    /// The number of the next to come, and of whose turn it is.
    state: Mutex<(u64, u64)>,
    changed: Condvar,
}

struct Turn<'a>(&'a Turns);

impl Turns {
    fn lock(&self) -> MutexGuard<'_, (u64, u64)> {
        // Two numbers, changed one at a time: nothing is half done if somebody panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Turn<'_> {
        let mut state = self.lock();
        let mine = state.0;
        state.0 += 1;
        while state.1 != mine {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().1 += 1;
        self.0.changed.notify_all();
    }
}

/// The processors that this thread may use; `None` where that cannot be told.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn processors() -> Option<Vec<usize>> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let allowed = sched_getaffinity(None).ok()?;
    Some((0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn processors() -> Option<Vec<usize>> {
    None
}

/// Keeps this thread to one processor; whether the system did.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn pin(processor: usize) -> bool {
    let mut one = rustix::thread::CpuSet::new();
    one.set(processor);
    rustix::thread::sched_setaffinity(None, &one).is_ok()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn pin(_: usize) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn threads_are_pinned_when_there_is_a_processor_for_each() {
        let Some(allowed) = processors() else { return };
        let pool = ComputePool::new(allowed.len()).unwrap();
        assert_eq!((pool.threads(), pool.pinning()), (allowed.len(), Pinning::Own));
        let mut own: Vec<_> = pool.run(|| rayon::broadcast(|_| processors().unwrap())).concat();
        own.sort_unstable();
        assert_eq!(own, allowed, "each has one, and no two the same");
        assert_eq!(processors(), Some(allowed), "whoever made the pool is not pinned");
    }

    #[test]
    fn threads_are_not_pinned_when_processors_are_more_or_fewer() {
        let Some(allowed) = processors() else { return };
        let pool = ComputePool::new(allowed.len() + 1).unwrap();
        assert_eq!(pool.pinning(), Pinning::NotEqual { processors: allowed.len() });
        assert!(pool.run(|| rayon::broadcast(|_| processors())).into_iter().all(|own| own.as_ref() == Some(&allowed)));
    }

    #[test]
    fn work_runs_in_turn_and_a_panic_ends_its_turn() {
        let pool = ComputePool::new(2).unwrap();
        let (inside, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    pool.run(|| {
                        assert!(!inside.swap(true, Ordering::SeqCst), "two at once");
                        rayon::join(std::thread::yield_now, std::thread::yield_now);
                        inside.store(false, Ordering::SeqCst);
                        done.fetch_add(1, Ordering::SeqCst);
                    });
                });
            }
        });
        assert_eq!(done.into_inner(), 8);
        let panics = std::panic::AssertUnwindSafe(|| pool.run(|| panic!("on purpose")));
        let caught: Result<(), _> = std::panic::catch_unwind(panics);
        assert!(caught.is_err());
        assert_eq!(pool.run(|| 7), 7);
    }

    #[test]
    fn turns_come_in_the_order_asked_for() {
        let turns = Turns::default();
        let (order, taken) = mpsc::channel();
        std::thread::scope(|scope| {
            let first = turns.take();
            for number in 0..4 {
                let (turns, order) = (&turns, order.clone());
                scope.spawn(move || {
                    let turn = turns.take();
                    order.send(number).unwrap();
                    drop(turn);
                });
                // It has asked once the number of the next to come has grown.
                while turns.lock().0 < number + 2 {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        drop(order);
        assert_eq!(taken.iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}
