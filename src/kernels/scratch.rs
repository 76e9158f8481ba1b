//! Working memory that each thread keeps between operations: fresh memory costs more than much of the arithmetic done in it.

use std::cell::RefCell;

thread_local! {
    static SPARE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` on `length` numbers, which are whatever was left there.
pub(super) fn with<R>(length: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut numbers = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if numbers.len() < length {
        numbers.resize(length, 0.0);
    }
    let result = work(&mut numbers[..length]);
    SPARE.with_borrow_mut(|spare| spare.push(numbers));
    result
}
