//! The `x-request-id` of a request: the caller's own, or a new one. Nothing is decided by it.

use std::fmt;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Longest id that is taken from a caller.
const LONGEST: usize = 128;

/// Names one request in the response, in the log, and on its way through proxies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The header in requests and responses.
    pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

    /// The caller's id if it is 1 to 128 visible ASCII characters, otherwise a random one: whatever else a caller sends has
    /// no business in a log.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(Self::HEADER).filter(|given| {
            let bytes = given.as_bytes();
            (1..=LONGEST).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
        });
        Self(given.cloned().unwrap_or_else(Self::random))
    }

    fn random() -> HeaderValue {
        let mut bytes = [0; 16];
        let filled = getrandom::fill(&mut bytes).is_ok();
        let id = bytes.iter().fold(String::new(), |id, byte| format!("{id}{byte:02x}"));
        HeaderValue::from_str(&id).ok().filter(|_| filled).unwrap_or_else(|| HeaderValue::from_static("unknown"))
    }

    /// The value for the response's header.
    #[must_use]
    pub fn into_header(self) -> HeaderValue {
        self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or("unknown"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &[u8]) -> String {
        let value = HeaderValue::from_bytes(value).unwrap();
        RequestId::of(&HeaderMap::from_iter([(RequestId::HEADER, value)])).to_string()
    }

    #[test]
    fn sane_ids_are_kept_and_others_replaced() {
        assert_eq!(of(b"order-66/a:b"), "order-66/a:b");
        assert_eq!(of(&[b'x'; 128]), "x".repeat(128));
        for bad in [&b""[..], b"two words", &[b'x'; 129], b"caf\xc3\xa9", b"tab\there"] {
            assert_eq!(of(bad).len(), 32, "{bad:?}");
        }
        assert_ne!(RequestId::of(&HeaderMap::new()), RequestId::of(&HeaderMap::new()));
    }
}
