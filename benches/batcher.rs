//! What the batching policy costs with a full queue.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use tapline::schedule::{Admission, Policy, Ticket, Weight, admission::Limits, next_batch};
use tokio::sync::oneshot;

struct One;

impl Weight for One {
    fn commands(&self) -> usize {
        1
    }
}

fn batcher(criterion: &mut Criterion) {
    let admission = Admission::new(Limits { requests: usize::MAX, ..Limits::default() });
    let policy = Policy::default();
    for waiting in [1, 64, 512] {
        criterion.bench_function(&format!("next batch of {waiting} waiting"), |bencher| {
            bencher.iter_batched(
                || {
                    let now = Instant::now();
                    let mut receivers = Vec::new();
                    let queue: VecDeque<Ticket<One, ()>> = (0..waiting)
                        .map(|_| {
                            let (reply, receiver) = oneshot::channel();
                            receivers.push(receiver);
                            let permit = admission.try_enter().expect("room");
                            Ticket { work: One, deadline: now + Duration::from_secs(60), queued: now, reply, permit }
                        })
                        .collect();
                    (queue, receivers, now)
                },
                |(mut queue, receivers, now)| (next_batch(&mut queue, now, &policy).0, queue, receivers),
                BatchSize::SmallInput,
            );
        });
    }
}

criterion_group!(benches, batcher);
criterion_main!(benches);
