//! Sizes of batches that a device is prepared for. What a batch lacks to the next one is filled up with work that nobody looks at.

/// Up to this size every number has a bucket of its own: small batches are frequent, and there padding costs most.
const EXACT: usize = 8;

/// The bucket of `size` things, 1, 2, … 8, then 16, 32, …
#[must_use]
pub fn bucket(size: usize) -> usize {
    if size <= EXACT { size.max(1) } else { size.next_power_of_two() }
}

/// All buckets that batches of up to `largest` things need.
#[must_use]
pub fn buckets(largest: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (1..=largest.max(1)).map(bucket).collect();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sizes_are_exact_and_large_ones_powers_of_two() {
        assert_eq!(buckets(0), [1]);
        assert_eq!(buckets(3), [1, 2, 3]);
        assert_eq!(buckets(16), [1, 2, 3, 4, 5, 6, 7, 8, 16]);
        assert_eq!(buckets(17), [1, 2, 3, 4, 5, 6, 7, 8, 16, 32]);
        for size in 1..100 {
            assert!(bucket(size) >= size && buckets(size).contains(&bucket(size)), "{size}");
            assert_eq!(bucket(bucket(size)), bucket(size));
        }
    }
}
