//! Where the hub and its cache are, by the environment variables that `huggingface_hub` reads.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where the hub and the cache are, and how patient to be.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// Address of the hub, without a slash at its end. `HF_ENDPOINT`.
    pub endpoint: String,
    /// Folder of the cache. `HF_HUB_CACHE`, else `hub` in `HF_HOME`.
    pub cache: PathBuf,
    /// Sent to the hub, and to nobody else. `HF_TOKEN`.
    pub token: Option<Token>,
    /// Ask nobody. `HF_HUB_OFFLINE`.
    pub offline: bool,
    /// Attempts without any progress before giving up.
    pub attempts: u32,
    /// Pause after the first failed attempt; it doubles each time.
    pub backoff: Duration,
}

/// A secret: it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Wraps a secret.
    #[must_use]
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the one header it belongs in.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl HubOptions {
    /// By the process's environment.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// By variables, wherever they come from. Empty ones count as absent.
    #[must_use]
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let home = || PathBuf::from(set("HOME").unwrap_or_default());
        let cache = || {
            let shared = || set("XDG_CACHE_HOME").map_or_else(|| home().join(".cache"), PathBuf::from);
            set("HF_HOME").map_or_else(|| shared().join("huggingface"), PathBuf::from).join("hub")
        };
        let cache = set("HF_HUB_CACHE").map_or_else(cache, PathBuf::from);
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        let on = |value: String| matches!(value.to_ascii_lowercase().as_str(), "1" | "on" | "yes" | "true");
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache,
            token: set("HF_TOKEN").map(Token::new),
            offline: set("HF_HUB_OFFLINE").is_some_and(on),
            attempts: 5,
            backoff: Duration::from_millis(500),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> HubOptions {
        HubOptions::from_variables(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_variables_of_huggingface_hub_are_honoured() {
        let plain = options(&[("HOME", "/home/me")]);
        assert_eq!(plain.cache, PathBuf::from("/home/me/.cache/huggingface/hub"));
        assert_eq!((plain.endpoint.as_str(), plain.offline), ("https://huggingface.co", false));
        let set = options(&[
            ("HF_HOME", "/data"),
            ("HF_ENDPOINT", "http://mirror:8000/"),
            ("HF_HUB_OFFLINE", "1"),
            ("HF_TOKEN", "hf_secret\n"),
        ]);
        assert_eq!(set.cache, PathBuf::from("/data/hub"));
        assert_eq!((set.endpoint.as_str(), set.offline), ("http://mirror:8000", true));
        assert_eq!(set.token.as_ref().map(Token::expose), Some("hf_secret"));
        assert!(!format!("{set:?}").contains("secret"), "a token is never printed");
        assert!(!options(&[("HF_HUB_OFFLINE", "0"), ("HF_TOKEN", "")]).offline);
    }
}
