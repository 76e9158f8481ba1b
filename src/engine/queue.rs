//! The queue in front of a model's engines, and the thread that makes batches of it: the next batch is formed while the engines
//! run theirs, and goes to whichever is free first.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::handle::Shared;
use super::prepare::Work;
use super::worker::{Outcome, Refusal};
use crate::schedule::batcher::{Decision, Dropped};
use crate::schedule::{Batch, Ticket, next_batch};
use crate::telemetry::{Counter, Gauge};

/// A ticket of an engine.
pub(super) type Waiting = Ticket<Work, Outcome>;

/// The way into the queue. The engines end once it is dropped or closed and the queue is empty.
#[derive(Debug)]
pub(super) struct Inbox {
    queue: Arc<Queue>,
}

/// Tickets that no engine has taken yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<Waiting>,
    closed: bool,
}

/// The engine takes no tickets any more.
#[derive(Debug)]
pub(super) struct Closed;

/// The way out of the queue, shared by the engines: one batch lies here until the next free engine takes it. No further one is
/// made meanwhile, so that requests which arrive still join it.
#[derive(Debug)]
pub(super) struct Batches {
    state: Mutex<BatchesState>,
    changed: Condvar,
}

#[derive(Debug)]
struct BatchesState {
    offered: Option<Batch<Work, Outcome>>,
    /// There will be no further batch.
    over: bool,
    /// Engines that may still take one.
    engines: usize,
}

impl Inbox {
    /// The way into this queue.
    pub const fn new(queue: Arc<Queue>) -> Self {
        Self { queue }
    }

    /// Queues a ticket; how many wait now.
    pub fn push(&self, ticket: Waiting) -> Result<usize, Closed> {
        let mut state = self.queue.lock();
        if state.closed {
            return Err(Closed);
        }
        state.waiting.push_back(ticket);
        let depth = state.waiting.len();
        drop(state);
        self.queue.arrived.notify_one();
        Ok(depth)
    }

    /// Lets the engines end once the queue is empty.
    pub fn close(&self) {
        self.queue.close();
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Held for queue operations only, which leave the queue whole even if one panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No more tickets; those waiting are still answered.
    pub fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Puts tickets back that an engine had taken and cannot answer, before all others.
    pub fn give_back(&self, tickets: Vec<Waiting>) {
        let mut state = self.lock();
        for ticket in tickets.into_iter().rev() {
            state.waiting.push_front(ticket);
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// No more tickets, and those waiting are dropped, which tells their callers.
    pub fn abandon(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.clear();
        self.arrived.notify_all();
    }
}

impl Batches {
    fn lock(&self) -> MutexGuard<'_, BatchesState> {
        // As with the queue.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next batch; `None` when there will be none.
    pub fn next(&self) -> Option<Batch<Work, Outcome>> {
        let mut state = self.lock();
        while state.offered.is_none() && !state.over {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.changed.notify_all();
        state.offered.take()
    }

    /// The next batch, if there is one already.
    pub fn next_if_waiting(&self) -> Option<Batch<Work, Outcome>> {
        let taken = self.lock().offered.take();
        self.changed.notify_all();
        taken
    }

    /// An engine will take no batch any more.
    pub fn leave(&self) {
        self.lock().engines -= 1;
        self.changed.notify_all();
    }

    /// Lays a batch down, tells `then`, and waits until it is taken; false when there is nobody left to take it. Dropping it
    /// tells its callers.
    fn offer(&self, batch: Batch<Work, Outcome>, then: impl FnOnce()) -> bool {
        let mut state = self.lock();
        state.offered = Some(batch);
        then();
        self.changed.notify_all();
        while state.offered.is_some() && state.engines > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.offered.take().is_none()
    }
}

/// Starts the thread that makes batches for this many engines.
pub(super) fn spawn(shared: &Arc<Shared>, queue: &Arc<Queue>, engines: usize) -> std::io::Result<Arc<Batches>> {
    let state = BatchesState { offered: None, over: false, engines };
    let batches = Arc::new(Batches { state: Mutex::new(state), changed: Condvar::new() });
    let (shared, queue, next) = (Arc::clone(shared), Arc::clone(queue), Arc::clone(&batches));
    std::thread::Builder::new().name(format!("batch-{}", shared.options.name)).spawn(move || {
        let over = Over(next);
        form_batches(&shared, &queue, &over.0);
    })?;
    Ok(batches)
}

/// Tells the engines that there is no further batch, however the thread that makes them ends.
struct Over(Arc<Batches>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.changed.notify_all();
    }
}

fn form_batches(shared: &Shared, queue: &Queue, next: &Batches) {
    let policy = shared.options.policy;
    let labels: &[_] = &[("model", shared.options.name.as_str())];
    let mut state = queue.lock();
    loop {
        let (decision, dropped) = next_batch(&mut state.waiting, Instant::now(), &policy);
        match decision {
            Decision::Run(batch) => {
                let depth = state.waiting.len();
                drop(state);
                refuse_dropped(dropped, labels);
                let popped = batch.tickets.len() as u64;
                let count = || {
                    Counter::QueuePopped.add(popped, labels);
                    #[expect(clippy::cast_precision_loss, reason = "a queue depth is far below 2^52")]
                    Gauge::QueueDepth.set(depth as f64, labels);
                };
                if !next.offer(batch, count) {
                    return;
                }
                state = queue.lock();
            }
            Decision::WaitUntil(moment) => {
                refuse_dropped(dropped, labels);
                let patience = moment.saturating_duration_since(Instant::now());
                let patience = if state.closed { Duration::ZERO } else { patience };
                state = queue.arrived.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
            }
            Decision::Idle => {
                refuse_dropped(dropped, labels);
                if state.closed {
                    return;
                }
                state = queue.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

fn refuse_dropped(dropped: Dropped<Work, Outcome>, labels: &[(&'static str, &str)]) {
    let count = |amount: usize, reason| {
        if amount > 0 {
            Counter::QueuePopped.add(amount as u64, labels);
            let labels: Vec<_> = labels.iter().copied().chain([("at", "queue"), ("reason", reason)]).collect();
            Counter::Dropped.add(amount as u64, &labels);
        }
    };
    count(dropped.cancelled, "cancelled");
    count(dropped.expired.len(), "expired");
    for ticket in dropped.expired {
        let _gone = ticket.reply.send(Err(Refusal::Expired));
    }
}
