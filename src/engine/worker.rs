//! The engines' threads: each owns one model on one device, runs the batches it gets, and says when it cannot go on.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::EngineError;
use super::ahead::{Ahead, Upload};
use super::fault::Severity;
use super::features::{CachedFeatures, FeatureKey};
use super::generate::{self, Answer, Grammar, Plan};
use super::handle::{Load, Shared};
use super::heartbeat::Heartbeat;
use super::prepare::{ImageInput, Work};
use super::queue::{self, Batches, Inbox, Queue};
use super::warm_up::warm_up;
use crate::geometry::Size;
use crate::models::{LoadedModel, PromptRow, SharedFeatures};
use crate::schedule::Ticket;
use crate::telemetry::{Counter, Gauge, Histogram};

/// What a ticket gets back.
pub(super) type Outcome = Result<Done, Refusal>;
type Tickets = Vec<Ticket<Work, Outcome>>;

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

/// Why an engine's thread ends.
enum End {
    /// There is nothing left to do.
    Closed,
    /// It cannot go on.
    Fault(String),
}

/// Starts a queue and one engine behind it for each of `loads`.
pub(super) fn spawn(shared: &Arc<Shared>, loads: Vec<Load>) -> std::io::Result<Inbox> {
    let queue = Arc::new(Queue::default());
    let inbox = Inbox::new(Arc::clone(&queue));
    let batches = queue::spawn(shared, &queue, loads.len())?;
    for (number, load) in loads.into_iter().enumerate() {
        let (shared, queue, batches) = (Arc::clone(shared), Arc::clone(&queue), Arc::clone(&batches));
        let name = format!("engine-{}-{number}", shared.options.name);
        std::thread::Builder::new().name(name).spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| live(&shared, number, load, &queue, &batches)));
            let end = match ended {
                Ok(end) => end,
                Err(panic) => End::Fault(format!("the engine thread panicked: {}", panic_message(&*panic))),
            };
            batches.leave();
            if let End::Fault(cause) = &end {
                shared.stop(cause);
                // The other engines answer what is queued; nothing new comes.
                queue.close();
            }
            if shared.ended() {
                shared.stop("it was closed");
                queue.abandon();
            }
        })?;
    }
    Ok(inbox)
}

/// One engine, from loading to its end.
fn live(shared: &Shared, number: usize, load: Load, queue: &Queue, batches: &Batches) -> End {
    let model = match on_threads(shared, load) {
        Ok(model) => model,
        Err(error) => return End::Fault(error.to_string()),
    };
    let name = shared.options.name.as_str();
    if let Err(error) = on_threads(shared, || warm_up(&model, shared.options.policy.max_commands)) {
        // Whatever it was, the process ends: there is no use in asking the device to free anything.
        std::mem::forget(model);
        return End::Fault(format!("warming up failed: {error}"));
    }
    tracing::info!(model = name, engine = number, "ready");
    shared.ready(Arc::clone(&model.profile));
    let engine = Engine::new(shared, number, model);
    match engine.run(batches) {
        Ok(()) => End::Closed,
        Err(cause) => {
            queue.give_back(engine.take_ahead().map(Ahead::into_tickets).unwrap_or_default());
            // Dropping what lies on a broken device would ask the device to free it.
            std::mem::forget(engine);
            shared.cache.leak();
            End::Fault(cause)
        }
    }
}

/// Runs `work` on the threads that models compute on, when it is their turn, or on this one where the device is another.
fn on_threads<T: Send>(shared: &Shared, work: impl FnOnce() -> T + Send) -> T {
    match &shared.options.compute {
        Some(pool) => pool.run(work),
        None => work(),
    }
}

/// What a thread has that owns a model.
struct Engine<'a> {
    shared: &'a Shared,
    heartbeat: &'a Heartbeat,
    model: LoadedModel,
    grammar: Option<Grammar>,
    /// The batch after the present one, when its screenshots are already on their way to the device.
    ahead: Mutex<Option<Ahead>>,
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
    fn new(shared: &'a Shared, number: usize, model: LoadedModel) -> Self {
        let grammar = model.profile.grammar();
        Self { shared, heartbeat: shared.heartbeat(number), model, grammar, ahead: Mutex::default() }
    }

    fn take_ahead(&self) -> Option<Ahead> {
        // A batch is put here or taken, whole.
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Runs batches until there are none any more, or until the device is broken: then the cause.
    fn run(&self, batches: &Batches) -> Result<(), String> {
        loop {
            let ahead = self.take_ahead();
            let Some((tickets, uploaded)) = ahead.map(Ahead::apart).or_else(|| Some((batches.next()?.tickets, None)))
            else {
                return Ok(());
            };
            let live = self.without_cancelled(tickets);
            let works: Vec<&Work> = live.iter().map(|ticket| &ticket.work).collect();
            let timed = || {
                let started = Instant::now();
                self.heartbeat.begin();
                let outcomes = self.attempt(&works, uploaded, batches);
                self.heartbeat.end();
                (outcomes, started)
            };
            let (outcomes, started) = if works.is_empty() { timed() } else { on_threads(self.shared, timed) };
            let broken = outcomes.iter().find_map(|outcome| match outcome {
                Err(EngineError::Stopped { cause }) => Some(cause.to_string()),
                _ => None,
            });
            if let Some(cause) = &broken {
                // Before the replies: whoever has one finds the server not ready.
                self.shared.stop(cause);
            }
            self.finish(live, outcomes, started, broken.is_some());
            if let Some(cause) = broken {
                return Err(cause);
            }
        }
    }

    fn without_cancelled(&self, tickets: Tickets) -> Tickets {
        let all = tickets.len();
        let live: Vec<_> = tickets.into_iter().filter(|ticket| !ticket.is_cancelled()).collect();
        if live.len() < all {
            let labels = [("model", self.shared.options.name.as_str()), ("at", "dispatch"), ("reason", "cancelled")];
            Counter::Dropped.add((all - live.len()) as u64, &labels);
        }
        live
    }

    /// Runs a batch; when it fails, each of its requests alone, so that one poisonous request fails by itself.
    fn attempt(
        &self,
        works: &[&Work],
        uploaded: Option<Upload>,
        batches: &Batches,
    ) -> Vec<Result<Answered, EngineError>> {
        if works.is_empty() {
            return Vec::new();
        }
        match self.step_caught(works, uploaded, batches) {
            Ok(step) => step.answers.into_iter().map(|answers| Ok((answers, step.vision, step.text))).collect(),
            // Nothing runs on a broken device: asking for one after the other would only break the news more slowly.
            Err(error @ EngineError::Stopped { .. }) => vec![Err(error); works.len()],
            Err(error) if works.len() == 1 => vec![Err(error)],
            Err(error) => {
                tracing::error!(%error, requests = works.len(), "a batch failed; running its requests one by one");
                works.iter().flat_map(|work| self.attempt(&[*work], None, batches)).collect()
            }
        }
    }

    fn step_caught(&self, works: &[&Work], uploaded: Option<Upload>, batches: &Batches) -> Result<Step, EngineError> {
        // The weights are read only, and a session dies with its step: nothing is left half-changed by a panic.
        let message = match catch_unwind(AssertUnwindSafe(|| self.step(works, uploaded, batches))) {
            Ok(Ok(step)) => return Ok(step),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic_message(&*panic).to_owned(),
        };
        Err(match Severity::of(&message) {
            Severity::Passing => EngineError::Device { message },
            Severity::Final => {
                let cause = format!("the device is broken for this process, which must be started anew: {message}");
                tracing::error!(model = self.shared.options.name, cause);
                EngineError::Stopped { cause: cause.into() }
            }
        })
    }

    /// Encodes each new screenshot once, then answers all commands.
    fn step(&self, works: &[&Work], uploaded: Option<Upload>, batches: &Batches) -> crate::models::Result<Step> {
        let started = Instant::now();
        let features = self.encode(works, uploaded)?;
        self.look_ahead(batches);
        self.model.locator.synchronize()?;
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
    fn encode(
        &self,
        works: &[&Work],
        uploaded: Option<Upload>,
    ) -> crate::models::Result<HashMap<usize, SharedFeatures>> {
        let mut features = HashMap::with_capacity(works.len());
        let mut new: Vec<(FeatureKey, Size, &[f32], Vec<usize>)> = Vec::new();
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
            let uploaded = uploaded.filter(|upload| upload.is_of(new.iter().map(|(key, ..)| key)));
            let encoded = match (uploaded, self.model.locator.uploader()) {
                (Some(upload), Some(uploader)) => uploader.encode(upload.images)?,
                _ => self.model.locator.encode_images(&pixels)?,
            };
            for ((key, size, _, members), encoded) in new.into_iter().zip(encoded) {
                let encoded = Arc::new(encoded);
                let kept = if self.shared.engines() > 1 { Arc::new(encoded.on_host()?) } else { Arc::clone(&encoded) };
                self.shared.cache.put(key, CachedFeatures { features: kept, size });
                features.extend(members.into_iter().map(|index| (index, Arc::clone(&encoded))));
            }
        }
        Ok(features)
    }

    /// Takes the next batch, if there is one, and sends its screenshots on their way, while the device is busy.
    fn look_ahead(&self, batches: &Batches) {
        let Some(uploader) = self.model.locator.uploader() else { return };
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if ahead.is_none()
            && let Some(batch) = batches.next_if_waiting()
        {
            *ahead = Some(Ahead::new(batch.tickets, &self.shared.cache, uploader));
        }
    }

    /// Replies. What a batch on a broken device refers to is left alone.
    fn finish(&self, tickets: Tickets, outcomes: Vec<Result<Answered, EngineError>>, started: Instant, broken: bool) {
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
            let Ticket { reply, permit, work, .. } = ticket;
            if broken {
                std::mem::forget(work);
            }
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
