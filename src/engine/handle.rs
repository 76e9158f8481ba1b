//! The way to an engine from anywhere: cheap to clone, safe to call from any task, and it never touches a tensor.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::compute::ComputePool;
use super::features::FeatureCache;
use super::heartbeat::Heartbeat;
use super::pool::CpuPool;
use super::prepare::{Preparer, Work};
use super::queue::Inbox;
use super::screenshots::ScreenshotStore;
use super::worker::{self, Done};
use super::{EngineError, LocateError, Pulse, Reply, Request};
use crate::models::{LoadError, LoadedModel, Profile};
use crate::schedule::{AdmissionError, Permit, Policy, Ticket};
use crate::screenshot::Limits;
use crate::telemetry::{Counter, Gauge};

/// How an engine runs.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The name the model is served under; known before it is loaded.
    pub name: String,
    /// How batches are made.
    pub policy: Policy,
    /// Bytes of visual features kept.
    pub feature_cache_bytes: usize,
    /// Bytes of screenshot files kept.
    pub screenshot_store_bytes: usize,
    /// Most pixels of a screenshot.
    pub limits: Limits,
    /// Where batches run. `None`: on the engine's own thread, as a model on a device other than the CPU must, since the device
    /// belongs to that thread.
    pub compute: Option<ComputePool>,
}

impl EngineOptions {
    /// The defaults for a model of this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            policy: Policy::default(),
            feature_cache_bytes: 256 << 20,
            screenshot_store_bytes: 64 << 20,
            limits: Limits::default(),
            compute: None,
        }
    }
}

/// Where an engine is in its life.
#[derive(Debug, Clone)]
pub enum State {
    /// Reading weights and warming up.
    Loading,
    /// Answering.
    Ready(Arc<Profile>),
    /// Over, with the reason.
    Stopped(Arc<str>),
}

/// Loads a model on the thread that will own it.
pub type Load = Box<dyn FnOnce() -> Result<LoadedModel, LoadError> + Send>;

/// A handle on an engine, or on several of one model behind one queue. They end when [`Handle::close`] is called or the last
/// handle is dropped, after they have answered what was accepted.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    pool: CpuPool,
}

/// What the engine's threads and its handles share.
#[derive(Debug)]
pub(super) struct Shared {
    pub options: EngineOptions,
    pub profile: OnceLock<Arc<Profile>>,
    stopped: RwLock<Option<Arc<str>>>,
    /// One for each engine.
    heartbeats: Vec<Heartbeat>,
    /// Engines that have loaded, and engines whose threads have ended.
    loaded: AtomicUsize,
    ended: AtomicUsize,
    pub cache: Arc<FeatureCache>,
    store: Arc<ScreenshotStore>,
    changed: Notify,
}

impl Shared {
    /// How many engines there are behind the queue.
    pub fn engines(&self) -> usize {
        self.heartbeats.len()
    }

    /// The heartbeat of one of them.
    pub fn heartbeat(&self, number: usize) -> &Heartbeat {
        &self.heartbeats[number]
    }

    /// One more engine can answer; with the last one, the model can.
    pub fn ready(&self, profile: Arc<Profile>) {
        if self.loaded.fetch_add(1, Ordering::AcqRel) + 1 == self.engines() {
            let _already = self.profile.set(profile);
            self.changed.notify_waiters();
        }
    }

    /// One engine has ended; whether it was the last.
    pub fn ended(&self) -> bool {
        self.ended.fetch_add(1, Ordering::AcqRel) + 1 == self.engines()
    }

    /// The engine answers nobody from now on. The first cause stays.
    pub fn stop(&self, cause: &str) {
        self.stopped.write().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert_with(|| cause.into());
        self.changed.notify_waiters();
    }

    /// Why the engine has ended, if it has.
    pub fn cause(&self) -> Option<Arc<str>> {
        self.stopped.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl Handle {
    /// Starts an engine. `load` runs on the engine's own thread, so that whatever it creates belongs to that thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn spawn(
        options: EngineOptions,
        pool: CpuPool,
        load: impl FnOnce() -> Result<LoadedModel, LoadError> + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::spawn_each(options, pool, vec![Box::new(load)])
    }

    /// Starts several engines of one model behind one queue, one for each of `loads`, which are to load the same checkpoint on
    /// different devices. A batch goes to whichever engine is free. The model is ready when all are; when one breaks, the model
    /// takes no new requests, and the others answer those that were accepted.
    ///
    /// Visual features are cached in the memory of the host where there are several engines, since any of them may be asked
    /// about a screenshot again, and on the device where there is one.
    ///
    /// # Errors
    /// The system gives no thread, or there are no `loads`.
    pub fn spawn_each(options: EngineOptions, pool: CpuPool, loads: Vec<Load>) -> std::io::Result<Self> {
        if loads.is_empty() {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "an engine needs a device"));
        }
        let shared = Arc::new(Shared {
            heartbeats: loads.iter().map(|_| Heartbeat::default()).collect(),
            loaded: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            cache: Arc::new(FeatureCache::new(options.feature_cache_bytes)),
            store: Arc::new(ScreenshotStore::new(options.screenshot_store_bytes)),
            options,
            profile: OnceLock::new(),
            stopped: RwLock::new(None),
            changed: Notify::new(),
        });
        let inbox = worker::spawn(&shared, loads)?;
        Ok(Self { shared, inbox: Arc::new(inbox), pool })
    }

    /// The name the model is served under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.options.name
    }

    /// Where the engine is in its life.
    #[must_use]
    pub fn state(&self) -> State {
        match (self.shared.cause(), self.shared.profile.get()) {
            (Some(cause), _) => State::Stopped(cause),
            (None, Some(profile)) => State::Ready(Arc::clone(profile)),
            (None, None) => State::Loading,
        }
    }

    /// Waits until the engine is ready or has stopped.
    ///
    /// # Errors
    /// [`EngineError::Stopped`] with the cause.
    pub async fn ready(&self) -> Result<Arc<Profile>, EngineError> {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.state() {
                State::Ready(profile) => return Ok(profile),
                State::Stopped(cause) => return Err(EngineError::Stopped { cause }),
                State::Loading => changed.await,
            }
        }
    }

    /// The engine thread's sign of life; of several, that of the one whose step takes longest. Never waits.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        let pulses = self.shared.heartbeats.iter().map(Heartbeat::pulse);
        pulses.max_by_key(|pulse| (pulse.busy, pulse.age)).unwrap_or_default()
    }

    /// Bytes of visual features kept at present.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.shared.cache.bytes()
    }

    /// Forgets all visual features.
    pub fn clear_cache(&self) {
        self.shared.cache.clear();
    }

    /// Takes no new requests; the engine ends once it has answered those it has.
    pub fn close(&self) {
        self.inbox.close();
    }

    /// Answers a request. `permit` is the caller's place among the admitted requests.
    ///
    /// Dropping the returned future cancels the request: it is not decoded, not queued and not run if it has not been yet.
    ///
    /// # Errors
    /// [`LocateError`] says whose fault it was.
    pub async fn locate(&self, mut permit: Permit, request: Request) -> Result<Reply, LocateError> {
        let profile = match self.state() {
            State::Ready(profile) => profile,
            State::Loading => return Err(EngineError::Loading { model: self.name().to_owned() }.into()),
            State::Stopped(cause) => return Err(EngineError::Stopped { cause }.into()),
        };
        let (arrived, timeout) = (request.arrived, request.timeout);
        let deadline = arrived + timeout;
        let late = || LocateError::Admission(AdmissionError::DeadlineExceeded { timeout });
        if deadline <= std::time::Instant::now() {
            return Err(late());
        }

        let preparer = Preparer {
            profile: Arc::clone(&profile),
            cache: Arc::clone(&self.shared.cache),
            store: Arc::clone(&self.shared.store),
            limits: self.shared.options.limits,
        };
        permit.hold_pixels(preparer.pixels(&request.image)?)?;
        let commands = request.commands.clone();
        let min_confidence = request.min_confidence;
        let preparing = self.pool.run(move || preparer.prepare(&request));
        let prepared = tokio::time::timeout_at(deadline.into(), preparing).await.map_err(|_| late())??;
        let prepared = prepared.ok_or(EngineError::Device { message: "preparing the request failed".into() })??;
        permit.release_pixels();

        let (reply, answer) = oneshot::channel();
        let ticket = Ticket { work: prepared.work, deadline, queued: std::time::Instant::now(), reply, permit };
        self.push(ticket)?;
        let done = tokio::time::timeout_at(deadline.into(), answer).await.map_err(|_| late())?;
        // The engine ended without an answer to this ticket: its cause says why.
        let done = done.map_err(|_| self.gone())?;
        let Done { answers, queue, vision, text } = match done {
            Ok(done) => done,
            Err(worker::Refusal::Expired) => return Err(late()),
            Err(worker::Refusal::Engine(error)) => return Err(error.into()),
        };

        let answering = std::time::Instant::now();
        let groundings = commands
            .iter()
            .zip(answers)
            .map(|(command, answer)| {
                let mut grounding = profile.ground(command, answer, prepared.region);
                grounding.found &= grounding.confidence.is_some_and(|confidence| confidence >= min_confidence);
                grounding
            })
            .collect();
        let mut timings = prepared.timings;
        (timings.queue, timings.vision, timings.text) = (queue, vision, text);
        timings.answer = answering.elapsed();
        timings.total = arrived.elapsed();
        Ok(Reply { screenshot: prepared.screenshot, groundings, timings })
    }

    fn push(&self, ticket: Ticket<Work, worker::Outcome>) -> Result<(), LocateError> {
        let depth = self.inbox.push(ticket).map_err(|_| self.gone())?;
        let labels: &[_] = &[("model", self.name())];
        Counter::QueuePushed.add(1, labels);
        #[expect(clippy::cast_precision_loss, reason = "a queue depth is far below 2^52")]
        Gauge::QueueDepth.set(depth as f64, labels);
        Ok(())
    }

    fn gone(&self) -> LocateError {
        match self.shared.cause() {
            Some(cause) => EngineError::Stopped { cause }.into(),
            None => AdmissionError::ShuttingDown.into(),
        }
    }
}

/// How long a probe lets a step run before it calls the engine stalled, unless told otherwise.
pub const STALL_THRESHOLD: Duration = Duration::from_secs(120);
