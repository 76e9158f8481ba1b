//! Shows a download on standard error: a bar on a terminal, a line every tenth elsewhere.

use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::say;
use crate::hub::Event;

/// Who watches a download.
pub struct Progress {
    terminal: bool,
    file: Mutex<Option<Current>>,
}

/// The file that is being downloaded.
struct Current {
    name: String,
    bar: ProgressBar,
    total: Option<u64>,
    here: u64,
    /// Tenths that have been told.
    told: u64,
}

impl Progress {
    /// On standard error.
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), file: Mutex::new(None) }
    }

    /// Shows an event.
    pub fn show(&self, event: Event<'_>) {
        let mut current = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Begin { file, total, already } => *current = Some(self.begin(file, total, already)),
            Event::Bytes(bytes) => {
                if let Some(current) = &mut *current {
                    current.advance(bytes, self.terminal);
                }
            }
            Event::End { file } => {
                if let Some(current) = current.take() {
                    current.bar.finish_and_clear();
                    say(format_args!("{file}: {}, checked", HumanBytes(current.here)));
                }
            }
            Event::Waiting { file } => say(format_args!("{file}: another process is downloading it; waiting")),
            Event::Retry { reason, after } => {
                say(format_args!("{reason}; trying again in {:.1} s", after.as_secs_f64()));
            }
            Event::Stale { revision, commit } => {
                say(format_args!("the hub cannot be reached: using the `{revision}` that is here, commit {commit}"));
            }
        }
    }

    fn begin(&self, file: &str, total: Option<u64>, already: u64) -> Current {
        let target = if self.terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target).with_position(already);
        let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(file.to_owned());
        if already > 0 {
            say(format_args!("{file}: going on at {}", HumanBytes(already)));
        } else if !self.terminal {
            let size = total.map_or_else(String::new, |total| format!(", {}", HumanBytes(total)));
            say(format_args!("{file}: downloading{size}"));
        }
        let mut current = Current { name: file.to_owned(), bar, total, here: already, told: 0 };
        current.told = current.tenths();
        current
    }
}

impl Current {
    fn tenths(&self) -> u64 {
        self.total.filter(|&total| total > 0).map_or(0, |total| self.here * 10 / total)
    }

    fn advance(&mut self, bytes: u64, terminal: bool) {
        self.here += bytes;
        self.bar.inc(bytes);
        let tenths = self.tenths();
        if !terminal && tenths > self.told && tenths < 10 {
            self.told = tenths;
            say(format_args!("{}: {} %", self.name, tenths * 10));
        }
    }
}
