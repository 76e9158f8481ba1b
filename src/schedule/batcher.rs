//! The batching policy: a pure function over the waiting tickets. It has no clock, no thread and no I/O.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::ticket::{Ticket, Weight};

/// How large a batch may be and how long the first ticket may wait for company.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Most commands in one batch. A single request with more commands than this still runs, alone.
    pub max_commands: usize,
    /// How long the oldest ticket may wait for others while the engine is free. Zero: never.
    pub max_wait: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { max_commands: 16, max_wait: Duration::ZERO }
    }
}

/// What the policy decided.
#[derive(Debug)]
pub enum Decision<W, R> {
    /// Run these now.
    Run(Batch<W, R>),
    /// Ask again at this moment, or when another ticket arrives.
    WaitUntil(Instant),
    /// Nothing is waiting.
    Idle,
}

/// Tickets that run together, oldest first.
#[derive(Debug)]
pub struct Batch<W, R> {
    /// Never empty.
    pub tickets: Vec<Ticket<W, R>>,
}

/// Tickets taken out of the queue without being run.
#[derive(Debug)]
pub struct Dropped<W, R> {
    /// Their callers have gone: there is nobody to tell.
    pub cancelled: usize,
    /// Their deadline has passed: each is still owed an answer that says so.
    pub expired: Vec<Ticket<W, R>>,
}

/// Takes the next batch off the queue at time `now`.
///
/// Cancelled and expired tickets leave the queue first, wherever they stand, so they never cost compute. Then tickets are
/// taken in order until the next one would exceed `policy.max_commands`.
pub fn next_batch<W: Weight, R>(
    waiting: &mut VecDeque<Ticket<W, R>>,
    now: Instant,
    policy: &Policy,
) -> (Decision<W, R>, Dropped<W, R>) {
    let mut dropped = Dropped { cancelled: 0, expired: Vec::new() };
    let mut live = VecDeque::with_capacity(waiting.len());
    for ticket in waiting.drain(..) {
        if ticket.is_cancelled() {
            dropped.cancelled += 1;
        } else if ticket.is_expired(now) {
            dropped.expired.push(ticket);
        } else {
            live.push_back(ticket);
        }
    }
    *waiting = live;
    let Some(oldest) = waiting.front() else { return (Decision::Idle, dropped) };

    let commands: usize = waiting.iter().map(|ticket| ticket.work.commands()).sum();
    let ripe = oldest.queued + policy.max_wait;
    if commands < policy.max_commands && now < ripe {
        return (Decision::WaitUntil(ripe), dropped);
    }
    let (mut tickets, mut taken) = (Vec::new(), 0);
    while let Some(next) = waiting.front() {
        if !tickets.is_empty() && taken + next.work.commands() > policy.max_commands {
            break;
        }
        taken += next.work.commands();
        tickets.extend(waiting.pop_front());
    }
    (Decision::Run(Batch { tickets }), dropped)
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::schedule::{Admission, admission::Limits};

    struct Commands(usize);
    impl Weight for Commands {
        fn commands(&self) -> usize {
            self.0
        }
    }

    struct Queue {
        admission: Admission,
        start: Instant,
        waiting: VecDeque<Ticket<Commands, ()>>,
        receivers: Vec<oneshot::Receiver<()>>,
    }

    impl Queue {
        fn new(commands: &[usize]) -> Self {
            let limits = Limits { requests: 64, ..Limits::default() };
            let mut queue = Self {
                admission: Admission::new(limits),
                start: Instant::now(),
                waiting: VecDeque::new(),
                receivers: Vec::new(),
            };
            for &count in commands {
                let (reply, receiver) = oneshot::channel();
                queue.waiting.push_back(Ticket {
                    work: Commands(count),
                    deadline: queue.start + Duration::from_secs(10),
                    queued: queue.start,
                    reply,
                    permit: queue.admission.try_enter().unwrap(),
                });
                queue.receivers.push(receiver);
            }
            queue
        }

        fn next(&mut self, after: Duration, policy: Policy) -> (Vec<usize>, Dropped<Commands, ()>) {
            let (decision, dropped) = next_batch(&mut self.waiting, self.start + after, &policy);
            let sizes = match decision {
                Decision::Run(batch) => batch.tickets.iter().map(|ticket| ticket.work.0).collect(),
                Decision::WaitUntil(_) | Decision::Idle => Vec::new(),
            };
            (sizes, dropped)
        }
    }

    const FOUR: Policy = Policy { max_commands: 4, max_wait: Duration::ZERO };

    #[test]
    fn takes_what_waits_in_order_up_to_the_limit() {
        let mut queue = Queue::new(&[1, 2, 1, 3]);
        assert_eq!(queue.next(Duration::ZERO, FOUR).0, [1, 2, 1]);
        assert_eq!(queue.next(Duration::ZERO, FOUR).0, [3]);
        assert_eq!(queue.next(Duration::ZERO, FOUR).0, [0; 0]);
    }

    #[test]
    fn a_request_larger_than_a_batch_runs_alone() {
        let mut queue = Queue::new(&[9, 1]);
        assert_eq!(queue.next(Duration::ZERO, FOUR).0, [9]);
        assert_eq!(queue.next(Duration::ZERO, FOUR).0, [1]);
    }

    #[test]
    fn cancelled_and_expired_tickets_never_reach_a_batch() {
        let mut queue = Queue::new(&[1, 1, 1]);
        drop(queue.receivers.remove(1));
        queue.waiting[2].deadline = queue.start + Duration::from_millis(5);
        let (sizes, dropped) = queue.next(Duration::from_millis(5), FOUR);
        assert_eq!((sizes.len(), dropped.cancelled, dropped.expired.len()), (1, 1, 1));
        assert_eq!(queue.admission.in_flight(), 1, "the expired ticket keeps its place until it is answered");
    }

    #[test]
    fn waits_for_company_only_when_asked_and_never_past_the_limit() {
        let patient = Policy { max_commands: 4, max_wait: Duration::from_millis(10) };
        let mut queue = Queue::new(&[1, 1]);
        let (decision, _) = next_batch(&mut queue.waiting, queue.start, &patient);
        assert!(matches!(decision, Decision::WaitUntil(at) if at == queue.start + patient.max_wait));
        assert_eq!(queue.next(patient.max_wait, patient).0, [1, 1]);
        assert_eq!(Queue::new(&[2, 2]).next(Duration::ZERO, patient).0, [2, 2], "a full batch does not wait");
    }
}
