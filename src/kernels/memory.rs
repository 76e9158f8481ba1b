//! Memory that begins with a line of the cache, in large pages where the system has them: weights are read from front to back again and again, and a
//! page of 4 kB would have to be looked up every few hundred cycles.

use std::ops::{Deref, DerefMut};

/// From this size on large pages are asked for: some of them fit.
#[cfg(target_os = "linux")]
const LARGE: usize = 4 << 20;

/// Bytes of a line of the cache: a register or a row of a tile that lies across two lines is loaded in twice the time.
const LINE: usize = 64;

/// Numbers that begin where a line of the cache does.
#[derive(Debug)]
pub(super) struct Aligned<T> {
    numbers: Vec<T>,
    start: usize,
    length: usize,
}

/// A number whose bits are all zero when it is.
///
/// # Safety
/// All bits zero must be a value of the type, and the one that it has by default.
#[expect(unsafe_code, reason = "a promise about bits")]
pub(super) unsafe trait Zero: Copy + Default {}

#[expect(unsafe_code, reason = "a promise about bits")]
// SAFETY: 0.0 is all zero bits.
unsafe impl Zero for f32 {}
#[expect(unsafe_code, reason = "a promise about bits")]
// SAFETY: so is 0.
unsafe impl Zero for u16 {}

impl<T: Zero> Aligned<T> {
    /// `length` zeros.
    pub fn zeros(length: usize) -> Self {
        let room = LINE / size_of::<T>();
        let numbers: Vec<T> = zeros(length + room);
        advise(&numbers);
        let start = numbers.as_ptr().align_offset(LINE).min(room);
        Self { numbers, start, length }
    }
}

/// Zeros that the system makes when they are first looked at: by all threads that fill them, and not by this one alone.
fn zeros<T: Zero>(length: usize) -> Vec<T> {
    let Ok(layout) = std::alloc::Layout::array::<T>(length) else { return vec![T::default(); length] };
    if layout.size() == 0 {
        return Vec::new();
    }
    #[expect(unsafe_code, reason = "zeroed memory of any type")]
    // SAFETY: the memory is the global allocator's, of the layout that a box of so many numbers has, and zeros are numbers.
    unsafe {
        let numbers = std::alloc::alloc_zeroed(layout).cast::<T>();
        if numbers.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        Box::from_raw(std::ptr::slice_from_raw_parts_mut(numbers, length)).into_vec()
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.numbers[self.start..][..self.length]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.numbers[self.start..][..self.length]
    }
}

/// Asks for large pages under the whole capacity. It is advice: whether the system takes it changes nothing but speed.
#[cfg(target_os = "linux")]
fn advise<T>(numbers: &Vec<T>) {
    const PAGE: usize = 4096;
    let bytes = numbers.capacity() * size_of::<T>();
    if bytes < LARGE {
        return;
    }
    let start = numbers.as_ptr().addr().next_multiple_of(PAGE);
    let end = (numbers.as_ptr().addr() + bytes) / PAGE * PAGE;
    #[expect(unsafe_code, reason = "advice about memory takes a pointer")]
    // SAFETY: the whole pages between start and end lie inside the vector's own memory; the advice does not change what is in
    // them.
    let advised = unsafe {
        rustix::mm::madvise(
            numbers.as_ptr().with_addr(start).cast_mut().cast(),
            end - start,
            rustix::mm::Advice::LinuxHugepage,
        )
    };
    if let Err(error) = advised {
        tracing::debug!(%error, "no large pages");
    }
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_: &Vec<T>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_of_any_length_begin_with_a_line() {
        for length in [0, 1, 1000, (4 << 20) + 3] {
            let mut numbers = Aligned::<u16>::zeros(length);
            assert_eq!((numbers.len(), numbers.iter().filter(|number| **number != 0).count()), (length, 0));
            numbers.fill(7);
            assert!(numbers.iter().all(|number| *number == 7) && numbers.as_ptr().addr().is_multiple_of(LINE));
        }
    }
}
