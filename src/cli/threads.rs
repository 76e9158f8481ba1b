//! How many threads compute. Our kernels run on a pool of our own and Candle's operations size theirs by rayon's variable, but
//! by default the one counts what the container lends and the other the machine's cores: setting it makes them agree.

use std::num::NonZeroUsize;

/// What rayon and Candle both read, each when it first needs threads.
pub const VARIABLE: &str = "RAYON_NUM_THREADS";

/// The flag, or what is in [`VARIABLE`], or what the machine lends.
pub fn wanted(flag: Option<NonZeroUsize>, variable: Option<&str>) -> NonZeroUsize {
    flag.or_else(|| variable.and_then(|text| text.trim().parse().ok())).unwrap_or_else(lent)
}

/// Threads that the machine, or the cgroup of this container, lends.
pub fn lent() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_then_the_variable_then_the_machine() {
        let three = NonZeroUsize::new(3);
        assert_eq!(Some(wanted(three, Some("5"))), three);
        assert_eq!(wanted(None, Some("5")).get(), 5);
        for nonsense in [None, Some(""), Some("0"), Some("many")] {
            assert_eq!(wanted(None, nonsense), lent());
        }
    }
}
