//! The CPU threads on which screenshots are decoded and commands tokenised: as many as the machine lends, and a bounded
//! queue in front of them. Never a thread of the async runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::schedule::AdmissionError;

/// A pool of CPU threads. Clones share it.
#[derive(Debug, Clone)]
pub struct CpuPool {
    threads: Arc<rayon::ThreadPool>,
    waiting: Arc<AtomicUsize>,
    limit: usize,
}

/// A pool's threads cannot be started.
#[derive(Debug, Clone, thiserror::Error)]
#[error("a CPU pool cannot start its threads: {0}")]
pub struct PoolError(String);

impl PoolError {
    pub(super) fn new(error: &rayon::ThreadPoolBuildError) -> Self {
        Self(error.to_string())
    }
}

struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl CpuPool {
    /// A pool of `threads` threads (0: as many as the cgroup lends) with at most `limit` jobs waiting or running.
    ///
    /// # Errors
    /// The system gives no threads.
    pub fn new(threads: usize, limit: usize) -> Result<Self, PoolError> {
        let lent = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(if threads == 0 { lent() } else { threads })
            .thread_name(|index| format!("prepare-{index}"))
            .start_handler(|_| step_back())
            .build()
            .map_err(|error| PoolError::new(&error))?;
        Ok(Self { threads: Arc::new(threads), waiting: Arc::new(AtomicUsize::new(0)), limit })
    }

    /// Runs `job` on the pool. When the returned future is dropped before the job has started, the job is never run.
    ///
    /// `None`: the job panicked.
    ///
    /// # Errors
    /// [`AdmissionError::Overloaded`] when too many jobs wait.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, AdmissionError> {
        let limit = self.limit;
        self.waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |waiting| (waiting < limit).then_some(waiting + 1))
            .map_err(|_| AdmissionError::Overloaded {
                what: "images to decode",
                limit: limit as u64,
                retry_after: Duration::from_secs(1),
            })?;
        let waiting = Waiting(Arc::clone(&self.waiting));
        let (done, result) = oneshot::channel();
        self.threads.spawn(move || {
            if done.is_closed() {
                return;
            }
            // A panic in here must not end the process, as it does in a bare rayon job.
            let value = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            // Given back before the caller is told, so that a caller who asks again finds its place free.
            drop(waiting);
            if let Ok(value) = value {
                let _gone = done.send(value);
            }
        });
        Ok(result.await.ok())
    }
}

/// Lowers the priority of the calling thread. A product on all cores waits for its slowest part: one core lent to a decoder
/// for a moment holds up the others too. With the model running, requests are prepared in the gaps, and there is a queue
/// of prepared ones; without, the priority changes nothing.
fn step_back() {
    const NICENESS: i32 = 19;
    // On Linux this is the calling thread's priority alone.
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "the CPU pool keeps its priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn runs_jobs_survives_panics_and_refuses_when_full() {
        let pool = CpuPool::new(1, 1).unwrap();
        assert_eq!(pool.run(|| 7).await, Ok(Some(7)));
        assert_eq!(pool.run(|| panic!("on purpose")).await.map(|value: Option<()>| value), Ok(None));
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let (started, running) = oneshot::channel();
        let busy = tokio::spawn({
            let pool = pool.clone();
            async move {
                pool.run(move || {
                    let _seen = started.send(());
                    gate.recv().ok()
                })
                .await
            }
        });
        running.await.unwrap();
        assert!(matches!(pool.run(|| 1).await, Err(AdmissionError::Overloaded { limit: 1, .. })));
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        assert_eq!(pool.run(|| 2).await, Ok(Some(2)));
    }
}
