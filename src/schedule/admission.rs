//! The door: how many requests and how many of their bytes and pixels may be inside at once. It refuses at once and never
//! makes anybody wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most of everything that may be inside at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests admitted and not yet answered.
    pub requests: usize,
    /// Bytes of request bodies held.
    pub bytes: u64,
    /// Pixels of decoded screenshots held.
    pub pixels: u64,
}

impl Default for Limits {
    fn default() -> Self {
        // 512 requests; 1 GiB of bodies; 256 megapixels, 768 MB when decoded to RGB.
        Self { requests: 512, bytes: 1 << 30, pixels: 256_000_000 }
    }
}

/// Why a request was not let in, or not finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionError {
    /// Too much is inside already. Try again after `retry_after`.
    #[error("the server is full: {what} in flight reached the limit of {limit}")]
    Overloaded {
        /// `requests`, `body bytes` or `pixels`.
        what: &'static str,
        /// The limit that was reached.
        limit: u64,
        /// When trying again is worth it, by the rate at which requests leave.
        retry_after: Duration,
    },
    /// The deadline passed before the answer was there. Ask with a longer `timeout_ms`, or when less is going on.
    #[error("no answer within {} ms", timeout.as_millis())]
    DeadlineExceeded {
        /// The time the caller gave.
        timeout: Duration,
    },
    /// The server is stopping and takes no new work. Ask another replica.
    #[error("the server is shutting down")]
    ShuttingDown,
}

#[derive(Debug)]
struct Door {
    limits: Limits,
    requests: AtomicUsize,
    bytes: AtomicU64,
    pixels: AtomicU64,
    draining: AtomicBool,
    /// Moving mean of the time a request spends inside, in microseconds; the base of `Retry-After`.
    stay_micros: AtomicU64,
}

/// Hands out [`Permit`]s. Clones share one door.
#[derive(Debug, Clone)]
pub struct Admission {
    door: Arc<Door>,
}

/// A place inside, with the bytes and pixels it holds. All of it is given back on drop.
#[derive(Debug)]
pub struct Permit {
    door: Arc<Door>,
    entered: Instant,
    bytes: u64,
    pixels: u64,
}

impl Admission {
    /// A door with these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            door: Arc::new(Door {
                limits,
                requests: AtomicUsize::new(0),
                bytes: AtomicU64::new(0),
                pixels: AtomicU64::new(0),
                draining: AtomicBool::new(false),
                stay_micros: AtomicU64::new(0),
            }),
        }
    }

    /// One more request, if there is room.
    ///
    /// # Errors
    /// [`AdmissionError::ShuttingDown`] after [`Admission::close`], [`AdmissionError::Overloaded`] when full.
    pub fn try_enter(&self) -> Result<Permit, AdmissionError> {
        let door = &self.door;
        if door.draining.load(Ordering::Acquire) {
            return Err(AdmissionError::ShuttingDown);
        }
        let limit = door.limits.requests;
        door.requests
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |inside| (inside < limit).then_some(inside + 1))
            .map_err(|_| door.overloaded("requests", limit as u64))?;
        Ok(Permit { door: Arc::clone(door), entered: Instant::now(), bytes: 0, pixels: 0 })
    }

    /// Takes no new requests from now on; those inside finish.
    pub fn close(&self) {
        self.door.draining.store(true, Ordering::Release);
    }

    /// Whether [`Admission::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.door.draining.load(Ordering::Acquire)
    }

    /// Requests inside.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.door.requests.load(Ordering::Acquire)
    }

    /// Bytes of request bodies held by the requests inside.
    #[must_use]
    pub fn admitted_bytes(&self) -> u64 {
        self.door.bytes.load(Ordering::Acquire)
    }
}

impl Permit {
    /// Counts `bytes` more of this request's body.
    ///
    /// # Errors
    /// [`AdmissionError::Overloaded`] when the bodies inside would pass the limit. A request that holds nothing yet is let
    /// through when nobody else holds bytes either, so that one large body is never refused for ever.
    pub fn hold_bytes(&mut self, bytes: u64) -> Result<(), AdmissionError> {
        let (mine, limit) = (self.bytes, self.door.limits.bytes);
        take(&self.door.bytes, mine, bytes, limit).map_err(|()| self.door.overloaded("body bytes", limit))?;
        self.bytes += bytes;
        Ok(())
    }

    /// Counts the pixels of this request's screenshot, before they are decoded.
    ///
    /// # Errors
    /// [`AdmissionError::Overloaded`] when the screenshots inside would pass the limit.
    pub fn hold_pixels(&mut self, pixels: u64) -> Result<(), AdmissionError> {
        let (mine, limit) = (self.pixels, self.door.limits.pixels);
        take(&self.door.pixels, mine, pixels, limit).map_err(|()| self.door.overloaded("pixels", limit))?;
        self.pixels += pixels;
        Ok(())
    }

    /// Gives the pixels back early, once the screenshot has become a model's input.
    pub fn release_pixels(&mut self) {
        self.door.pixels.fetch_sub(std::mem::take(&mut self.pixels), Ordering::AcqRel);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let stay = u64::try_from(self.entered.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mean = self.door.stay_micros.load(Ordering::Relaxed);
        // A lost update between load and store only makes the hint a little older.
        let next = if mean == 0 { stay } else { mean - mean / 16 + stay / 16 };
        self.door.stay_micros.store(next, Ordering::Relaxed);
        self.door.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.door.pixels.fetch_sub(self.pixels, Ordering::AcqRel);
        self.door.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Door {
    fn overloaded(&self, what: &'static str, limit: u64) -> AdmissionError {
        // Half a mean stay from now about half of those inside have left. Whole seconds, since that is what the header says.
        let half_stay = Duration::from_micros(self.stay_micros.load(Ordering::Relaxed) / 2);
        let retry_after = Duration::from_secs(half_stay.as_secs().clamp(1, 60));
        AdmissionError::Overloaded { what, limit, retry_after }
    }
}

fn take(held: &AtomicU64, mine: u64, more: u64, limit: u64) -> Result<(), ()> {
    held.fetch_update(Ordering::AcqRel, Ordering::Acquire, |all| {
        let fits = all.saturating_add(more) <= limit;
        (fits || all == mine).then_some(all.saturating_add(more))
    })
    .map(|_| ())
    .map_err(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_run_out_and_come_back() {
        let admission = Admission::new(Limits { requests: 2, ..Limits::default() });
        let first = admission.try_enter().unwrap();
        let _second = admission.try_enter().unwrap();
        let refused = admission.try_enter().unwrap_err();
        assert!(matches!(refused, AdmissionError::Overloaded { what: "requests", limit: 2, retry_after }
            if retry_after >= Duration::from_secs(1)));
        drop(first);
        assert!(admission.try_enter().is_ok());
    }

    #[test]
    fn bytes_and_pixels_are_counted_and_given_back() {
        let admission = Admission::new(Limits { requests: 9, bytes: 100, pixels: 50 });
        let mut large = admission.try_enter().unwrap();
        large.hold_bytes(70).unwrap();
        large.hold_pixels(500).expect("the only screenshot inside may be larger than the limit");
        let mut other = admission.try_enter().unwrap();
        assert!(other.hold_bytes(40).is_err());
        assert!(other.hold_pixels(1).is_err());
        large.release_pixels();
        other.hold_pixels(50).unwrap();
        drop(large);
        other.hold_bytes(40).unwrap();
        assert_eq!((admission.admitted_bytes(), admission.in_flight()), (40, 1));
        drop(other);
        assert_eq!((admission.admitted_bytes(), admission.in_flight()), (0, 0));
    }

    #[test]
    fn a_closed_door_lets_nobody_in_and_everybody_finish() {
        let admission = Admission::new(Limits::default());
        let inside = admission.try_enter().unwrap();
        admission.close();
        assert_eq!(admission.try_enter().unwrap_err(), AdmissionError::ShuttingDown);
        assert_eq!(admission.in_flight(), 1);
        drop(inside);
        assert_eq!(admission.in_flight(), 0);
    }
}
