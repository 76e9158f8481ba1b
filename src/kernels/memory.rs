//! Large pieces of memory, in large pages where the system has them: weights are read from front to back again and again, and a
//! page of 4 kB would have to be looked up every few hundred cycles.

/// From this size on large pages are asked for: some of them fit.
#[cfg(target_os = "linux")]
const LARGE: usize = 4 << 20;

/// `length` zeros.
pub(super) fn zeros<T: Copy + Default>(length: usize) -> Vec<T> {
    let mut numbers = Vec::with_capacity(length);
    advise(&numbers);
    numbers.resize(length, T::default());
    numbers
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
    fn zeros_of_any_length() {
        for length in [0, 1, 1000, (4 << 20) + 3] {
            let numbers = zeros::<u16>(length);
            assert_eq!((numbers.len(), numbers.iter().filter(|number| **number != 0).count()), (length, 0));
        }
    }
}
