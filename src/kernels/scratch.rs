//! Working memory that each thread keeps between operations: fresh memory costs more than much of the arithmetic done in it.

use std::cell::RefCell;
use std::thread::LocalKey;

use super::memory::{Aligned, Zero};
use super::number::Bf16;

/// Memory that nobody uses at the moment.
pub(super) type Spare<T> = RefCell<Vec<Aligned<T>>>;

thread_local! {
    pub(super) static NUMBERS: Spare<f32> = const { RefCell::new(Vec::new()) };
    pub(super) static BF16: Spare<Bf16> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` on `length` numbers, which are whatever was left there and begin with a line of the cache.
pub(super) fn with<T: Zero, R>(
    spare: &'static LocalKey<Spare<T>>,
    length: usize,
    work: impl FnOnce(&mut [T]) -> R,
) -> R {
    let mut numbers = match spare.with_borrow_mut(Vec::pop) {
        Some(numbers) if numbers.len() >= length => numbers,
        _ => Aligned::zeros(length),
    };
    let result = work(&mut numbers[..length]);
    spare.with_borrow_mut(|spare| spare.push(numbers));
    result
}
