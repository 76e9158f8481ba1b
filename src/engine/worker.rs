//! The engine's two threads: one forms the next batch while the other, which owns the model, runs the present one.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::EngineError;
use super::features::CachedFeatures;
use super::generate::{self, Answer, Grammar, Plan};
use super::handle::Shared;
use super::prepare::{ImageInput, Work};
use crate::models::{LoadError, LoadedModel, PromptRow, SharedFeatures};
use crate::schedule::batcher::{Decision, Dropped};
use crate::schedule::{Batch, Ticket, next_batch};
use crate::telemetry::{Counter, Gauge, Histogram};

/// What a ticket gets back.
pub(super) type Outcome = Result<Done, Refusal>;
type Waiting = VecDeque<Ticket<Work, Outcome>>;

/// The engine's part of a reply.
#[derive(Debug)]
pub(super) struct Done {
    pub answers: Vec<Answer>,
    pub queue: Duration,
    pub vision: Duration,
    pub text: Duration,
}

/// Why a ticket got no answer.
#[derive(Debug, Clone)]
pub(super) enum Refusal {
    Expired,
    Engine(EngineError),
}

/// The queue in front of an engine.
#[derive(Debug)]
pub(super) struct Inbox {
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: Waiting,
    closed: bool,
}

/// The engine takes no tickets any more.
#[derive(Debug)]
pub(super) struct Closed;

impl Inbox {
    /// Queues a ticket; how many wait now.
    pub fn push(&self, ticket: Ticket<Work, Outcome>) -> Result<usize, Closed> {
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

    /// Lets the engine end once the queue is empty.
    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.queue.arrived.notify_one();
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

    /// No more tickets, and those waiting are dropped, which tells their callers.
    fn abandon(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.clear();
        self.arrived.notify_all();
    }
}

/// Starts the threads of an engine.
pub(super) fn spawn(
    shared: Arc<Shared>,
    load: impl FnOnce() -> Result<LoadedModel, LoadError> + Send + 'static,
) -> std::io::Result<Inbox> {
    let queue = Arc::new(Queue::default());
    // Depth 0: the next batch is formed while one runs, and waits in its maker's hands.
    let (next, batches) = sync_channel(0);
    let name = shared.options.name.clone();
    std::thread::Builder::new().name(format!("batch-{name}")).spawn({
        let (shared, queue) = (Arc::clone(&shared), Arc::clone(&queue));
        move || form_batches(&shared, &queue, &next)
    })?;
    std::thread::Builder::new().name(format!("engine-{name}")).spawn({
        let queue = Arc::clone(&queue);
        move || {
            let ended = catch_unwind(AssertUnwindSafe(|| match load() {
                Ok(model) => {
                    tracing::info!(model = shared.options.name, "ready");
                    let engine = Engine::new(&shared, model);
                    engine.shared.ready(Arc::clone(&engine.model.profile));
                    engine.run(&batches);
                    None
                }
                Err(error) => Some(error.to_string()),
            }));
            let cause = match ended {
                Ok(cause) => cause.unwrap_or_else(|| "it was closed".to_owned()),
                Err(panic) => format!("the engine thread panicked: {}", panic_message(&*panic)),
            };
            shared.stop(&cause);
            queue.abandon();
        }
    })?;
    Ok(Inbox { queue })
}

fn form_batches(shared: &Shared, queue: &Queue, next: &SyncSender<Batch<Work, Outcome>>) {
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
                Counter::QueuePopped.add(batch.tickets.len() as u64, labels);
                #[expect(clippy::cast_precision_loss, reason = "a queue depth is far below 2^52")]
                Gauge::QueueDepth.set(depth as f64, labels);
                if next.send(batch).is_err() {
                    return; // The engine is over; dropping the batch tells its callers.
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

/// The thread that owns the model.
struct Engine<'a> {
    shared: &'a Shared,
    model: LoadedModel,
    grammar: Option<Grammar>,
}

/// One ticket's answers, and the time its batch took for images and for text.
type Answered = (Vec<Answer>, Duration, Duration);

/// Answers of a batch, ticket by ticket, and where its time went.
struct Step {
    answers: Vec<Vec<Answer>>,
    vision: Duration,
    text: Duration,
}

impl<'a> Engine<'a> {
    fn new(shared: &'a Shared, model: LoadedModel) -> Self {
        let grammar = model.profile.grammar();
        Self { shared, model, grammar }
    }

    fn run(&self, batches: &Receiver<Batch<Work, Outcome>>) {
        while let Ok(batch) = batches.recv() {
            let live = self.without_cancelled(batch.tickets);
            let works: Vec<&Work> = live.iter().map(|ticket| &ticket.work).collect();
            let (outcomes, started) = match &self.shared.options.compute {
                Some(pool) if !works.is_empty() => pool.run(|| self.timed(&works)),
                _ => self.timed(&works),
            };
            self.finish(live, outcomes, started);
        }
    }

    /// Runs a batch between two beats of the heart; and when it began.
    fn timed(&self, works: &[&Work]) -> (Vec<Result<Answered, EngineError>>, Instant) {
        let started = Instant::now();
        self.shared.heartbeat.begin();
        let outcomes = self.attempt(works);
        self.shared.heartbeat.end();
        (outcomes, started)
    }

    fn without_cancelled(&self, tickets: Vec<Ticket<Work, Outcome>>) -> Vec<Ticket<Work, Outcome>> {
        let all = tickets.len();
        let live: Vec<_> = tickets.into_iter().filter(|ticket| !ticket.is_cancelled()).collect();
        if live.len() < all {
            let labels = [("model", self.shared.options.name.as_str()), ("at", "dispatch"), ("reason", "cancelled")];
            Counter::Dropped.add((all - live.len()) as u64, &labels);
        }
        live
    }

    /// Runs a batch; when it fails, each of its requests alone, so that one poisonous request fails by itself.
    fn attempt(&self, works: &[&Work]) -> Vec<Result<Answered, EngineError>> {
        if works.is_empty() {
            return Vec::new();
        }
        match self.step_caught(works) {
            Ok(step) => step.answers.into_iter().map(|answers| Ok((answers, step.vision, step.text))).collect(),
            Err(error) if works.len() == 1 => vec![Err(error)],
            Err(error) => {
                tracing::error!(%error, requests = works.len(), "a batch failed; running its requests one by one");
                works.iter().flat_map(|work| self.attempt(&[*work])).collect()
            }
        }
    }

    fn step_caught(&self, works: &[&Work]) -> Result<Step, EngineError> {
        // The weights are read only, and a session dies with its step: nothing is left half-changed by a panic.
        match catch_unwind(AssertUnwindSafe(|| self.step(works))) {
            Ok(Ok(step)) => Ok(step),
            Ok(Err(error)) => Err(EngineError::Device { message: error.to_string() }),
            Err(panic) => Err(EngineError::Device { message: panic_message(&*panic).to_owned() }),
        }
    }

    /// Encodes each new screenshot once, then answers all commands.
    fn step(&self, works: &[&Work]) -> crate::models::Result<Step> {
        let started = Instant::now();
        let features = self.encode(works)?;
        let vision = started.elapsed();
        let mut answers: Vec<Vec<Answer>> = works.iter().map(|work| Vec::with_capacity(work.prompts.len())).collect();
        for (plan, members) in by_plan(works) {
            let rows: Vec<PromptRow<'_>> = members
                .iter()
                .flat_map(|&index| {
                    works[index]
                        .prompts
                        .iter()
                        .map(|ids| PromptRow { features: &features[&index], ids })
                        .collect::<Vec<_>>()
                })
                .collect();
            let mut session = self.model.locator.begin(&rows)?;
            let settings = &self.model.profile.generation;
            let mut decoded =
                generate::generate(&mut *session, rows.len(), settings, self.grammar.as_ref(), plan)?.into_iter();
            for &index in &members {
                answers[index].extend(decoded.by_ref().take(works[index].prompts.len()));
            }
        }
        Ok(Step { answers, vision, text: started.elapsed().saturating_sub(vision) })
    }

    /// The features of each request's screenshot, by the request's place in the batch.
    fn encode(&self, works: &[&Work]) -> crate::models::Result<HashMap<usize, SharedFeatures>> {
        let mut features = HashMap::with_capacity(works.len());
        let mut new: Vec<(_, _, &[f32], Vec<usize>)> = Vec::new();
        for (index, work) in works.iter().enumerate() {
            match &work.image {
                ImageInput::Cached(cached) => {
                    features.insert(index, Arc::clone(cached));
                }
                ImageInput::Pixels { key, size, pixels } => {
                    // Another request may have brought the same screenshot, in this batch or since this one was prepared.
                    if let Some(cached) = self.shared.cache.get(key) {
                        features.insert(index, cached.features);
                    } else if let Some((.., members)) = new.iter_mut().find(|(other, ..)| other == key) {
                        members.push(index);
                    } else {
                        new.push((*key, *size, pixels, vec![index]));
                    }
                }
            }
        }
        if !new.is_empty() {
            let pixels: Vec<&[f32]> = new.iter().map(|&(_, _, pixels, _)| pixels).collect();
            let encoded = self.model.locator.encode_images(&pixels)?;
            for ((key, size, _, members), encoded) in new.into_iter().zip(encoded) {
                let encoded = Arc::new(encoded);
                self.shared.cache.put(key, CachedFeatures { features: Arc::clone(&encoded), size });
                features.extend(members.into_iter().map(|index| (index, Arc::clone(&encoded))));
            }
        }
        Ok(features)
    }

    fn finish(
        &self,
        tickets: Vec<Ticket<Work, Outcome>>,
        outcomes: Vec<Result<Answered, EngineError>>,
        started: Instant,
    ) {
        let labels: &[_] = &[("model", self.shared.options.name.as_str())];
        let commands: usize = tickets.iter().map(|ticket| ticket.work.prompts.len()).sum();
        let queues: Vec<Duration> =
            tickets.iter().map(|ticket| started.saturating_duration_since(ticket.queued)).collect();
        let count = tickets.len();
        // Before the replies, so that whoever has one finds its batch in a scrape.
        if count > 0 {
            Histogram::BatchTickets.observe(count as f64, labels);
            Histogram::BatchCommands.observe(commands as f64, labels);
            Gauge::FeatureCacheBytes.set(self.shared.cache.bytes() as f64, labels);
        }
        for ((ticket, outcome), queue) in tickets.into_iter().zip(outcomes).zip(queues) {
            let outcome = match outcome {
                Ok((answers, vision, text)) => Ok(Done { answers, queue, vision, text }),
                // Whoever asked logs it, with the request it belongs to.
                Err(error) => Err(Refusal::Engine(error)),
            };
            // The permit is given back before the caller is told, so that a caller who asks again finds its place free.
            let Ticket { reply, permit, .. } = ticket;
            drop(permit);
            let _gone = reply.send(outcome);
        }
        Counter::BusySeconds.add(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX), labels);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Gauge::LastStep.set(now.as_secs_f64(), labels);
    }
}

/// Requests of a batch by how they are to be decoded, each group in the batch's order.
fn by_plan(works: &[&Work]) -> Vec<(Plan, Vec<usize>)> {
    let mut groups: Vec<(Plan, Vec<usize>)> = Vec::new();
    for (index, work) in works.iter().enumerate() {
        match groups.iter_mut().find(|(plan, _)| *plan == work.plan) {
            Some((_, members)) => members.push(index),
            None => groups.push((work.plan, vec![index])),
        }
    }
    groups
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}
