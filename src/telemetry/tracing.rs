//! Where log lines go: standard error, one line each, as text or as JSON. It decides no level of a single event.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// The environment variable that says what is logged, such as `debug` or `tapline::server=debug,info`.
pub const FILTER: &str = "TAPLINE_LOG";

/// Sends log lines to standard error from now on; `json` for collectors, otherwise text. The level is `info` unless
/// [`FILTER`] says otherwise. Only the first call in a process counts.
pub fn init(json: bool) {
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A program that embeds Tapline may have set its own subscriber, which stays.
    let _already = if json {
        lines.json().flatten_event(true).try_init()
    } else {
        lines.with_ansi(std::io::stderr().is_terminal()).try_init()
    };
}
