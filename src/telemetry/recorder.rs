//! Keeps the numbers and writes them down for a scrape. There is one recorder in a process, of our own and not the `metrics`
//! crate's global one: a program that embeds Tapline keeps its choice, and any number of servers in a test share this one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError, RwLock};

use metrics::{Key, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::names::{CACHE_RESULTS, Counter, DROPS, Gauge, Histogram, Labels, Outcome, Reason, STAGES};

struct Telemetry {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    /// Counters in seconds, held in microseconds: name and labels as they stand in a scrape.
    micros: RwLock<BTreeMap<(&'static str, String), AtomicU64>>,
}

static TELEMETRY: LazyLock<Telemetry> = LazyLock::new(|| {
    let recorder = Histogram::ALL.iter().copied().fold(PrometheusBuilder::new(), with_buckets).build_recorder();
    for counter in Counter::ALL {
        recorder.describe_counter(counter.name().into(), None, counter.help().into());
    }
    for gauge in Gauge::ALL {
        recorder.describe_gauge(gauge.name().into(), None, gauge.help().into());
    }
    for histogram in Histogram::ALL {
        recorder.describe_histogram(histogram.name().into(), None, histogram.help().into());
    }
    Telemetry { handle: recorder.handle(), recorder, micros: RwLock::default() }
});

static METADATA: Metadata<'static> = Metadata::new("tapline", Level::INFO, None);

fn with_buckets(builder: PrometheusBuilder, histogram: Histogram) -> PrometheusBuilder {
    builder
        .set_buckets_for_metric(Matcher::Full(histogram.name().to_owned()), histogram.buckets())
        // Only for an empty list of buckets, which none is.
        .unwrap_or_default()
}

fn key(name: &'static str, labels: Labels<'_>) -> Key {
    let labels: Vec<_> = labels.iter().map(|&(name, value)| Label::new(name, value.to_owned())).collect();
    Key::from_parts(name, labels)
}

pub(super) fn counter(counter: Counter, labels: Labels<'_>) -> metrics::Counter {
    TELEMETRY.recorder.register_counter(&key(counter.name(), labels), &METADATA)
}

pub(super) fn gauge(gauge: Gauge, labels: Labels<'_>) -> metrics::Gauge {
    TELEMETRY.recorder.register_gauge(&key(gauge.name(), labels), &METADATA)
}

pub(super) fn histogram(histogram: Histogram, labels: Labels<'_>) -> metrics::Histogram {
    TELEMETRY.recorder.register_histogram(&key(histogram.name(), labels), &METADATA)
}

pub(super) fn add_micros(counter: Counter, micros: u64, labels: Labels<'_>) {
    let key = (counter.name(), written(labels));
    let held = TELEMETRY.micros.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(sum) = held.get(&key) {
        sum.fetch_add(micros, Ordering::Relaxed);
        return;
    }
    drop(held);
    let mut held = TELEMETRY.micros.write().unwrap_or_else(PoisonError::into_inner);
    held.entry(key).or_default().fetch_add(micros, Ordering::Relaxed);
}

/// Labels as they stand in a scrape, without the braces.
fn written(labels: Labels<'_>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{name}=\"{value}\"");
    }
    text
}

/// Makes every metric of these models appear in a scrape from the start, at zero: a counter that is absent until its first
/// event hides that event from `rate`.
pub fn register<'a>(models: impl IntoIterator<Item = &'a str>, routes: &[&str]) {
    let features = if cfg!(feature = "cuda") { "cuda" } else { "" };
    Gauge::BuildInfo.set(
        1.0,
        &[("version", env!("CARGO_PKG_VERSION")), ("features", features), ("architecture", std::env::consts::ARCH)],
    );
    // Gauges are not set but touched, here and below: another server or an engine may have set them already.
    for touched in [Gauge::InFlight, Gauge::AdmittedBytes, Gauge::Draining] {
        let _touched = gauge(touched, &[]);
    }
    for model in models {
        let model = ("model", model);
        for route in routes {
            let route = ("route", *route);
            let _touched = histogram(Histogram::RequestDuration, &[model, route]);
            for outcome in Outcome::ALL {
                Counter::Requests.add(0, &[model, route, ("outcome", outcome.as_str())]);
            }
        }
        for reason in Reason::ALL {
            Counter::Rejected.add(0, &[model, ("reason", reason.as_str())]);
        }
        for (at, reason) in DROPS {
            Counter::Dropped.add(0, &[model, ("at", at), ("reason", reason)]);
        }
        for result in CACHE_RESULTS {
            Counter::FeatureCache.add(0, &[model, ("result", result)]);
            Counter::GraphLaunches.add(0, &[model, ("result", result)]);
        }
        for stage in STAGES {
            let _touched = histogram(Histogram::StageDuration, &[model, ("stage", stage)]);
        }
        for counter in [Counter::QueuePushed, Counter::QueuePopped, Counter::BusySeconds] {
            counter.add(0, &[model]);
        }
        for touched in [Gauge::QueueDepth, Gauge::FeatureCacheBytes, Gauge::LastStep, Gauge::Ready] {
            let _touched = gauge(touched, &[model]);
        }
        for touched in [Histogram::BatchTickets, Histogram::BatchCommands] {
            let _touched = histogram(touched, &[model]);
        }
    }
}

/// All metrics in the Prometheus text format, version 0.0.4. `refresh` sets the gauges that nobody sets when their value
/// changes; two scrapes do not mix theirs.
pub fn render(refresh: impl FnOnce()) -> String {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    refresh();
    let mut text = TELEMETRY.handle.render();
    let held = TELEMETRY.micros.read().unwrap_or_else(PoisonError::into_inner);
    for counter in Counter::ALL {
        let name = counter.name();
        let mut series = held.iter().filter(|((held, _), _)| *held == name).peekable();
        if series.peek().is_some() {
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} counter", counter.help());
        }
        for ((_, labels), micros) in series {
            #[expect(clippy::cast_precision_loss, reason = "a microsecond in 285 years")]
            let seconds = micros.load(Ordering::Relaxed) as f64 / 1e6;
            let _ = writeln!(text, "{name}{{{labels}}} {seconds}");
        }
    }
    text
}

/// Folds the samples of the histograms into their buckets. Call it every few seconds: without it and without scrapes the
/// samples pile up.
pub fn upkeep() {
    TELEMETRY.handle.run_upkeep();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_from_the_start_and_starts_right() {
        register(["recorder-test"], &["/locate"]);
        let text = render(|| ());
        let counters = Counter::ALL.iter().map(|counter| (counter.name(), "counter"));
        let histograms = Histogram::ALL.iter().map(|histogram| (histogram.name(), "histogram"));
        // What a model is, is known once it is loaded, and not every machine has a GPU.
        let later = |gauge: &Gauge| *gauge == Gauge::ModelInfo || Gauge::OF_GPUS.contains(gauge);
        let gauges = Gauge::ALL.iter().filter(|gauge| !later(gauge)).map(|gauge| (gauge.name(), "gauge"));
        for (name, kind) in counters.chain(gauges).chain(histograms) {
            assert!(name.starts_with("tapline_"));
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} is missing in\n{text}");
        }
    }

    #[test]
    fn busy_time_is_told_in_seconds() {
        Counter::BusySeconds.add(1_250_000, &[("model", "a \"quoted\" name")]);
        Counter::BusySeconds.add(250_000, &[("model", "a \"quoted\" name")]);
        assert!(render(|| ()).contains("tapline_busy_seconds_total{model=\"a \\\"quoted\\\" name\"} 1.5\n"));
    }
}
