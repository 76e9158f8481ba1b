//! A scrape parses, names every metric from the start, and counts each request once.
#![expect(clippy::float_cmp, reason = "counts are whole numbers, exact in an f64")]

use std::collections::HashMap;

use axum::http::StatusCode;
use tapline::schedule::Policy;
use tapline::schedule::admission::Limits;
use tapline::telemetry::{self, Counter, Gauge, Histogram};

use crate::support::{Gate, Server, Setup, ask, png, raw, until, until_inside};

/// Series by name and labels, with the labels in the order in which they were written.
struct Scrape {
    series: HashMap<String, f64>,
    kinds: HashMap<String, String>,
}

impl Scrape {
    async fn of(server: &Server) -> Self {
        let answer = server.get("/metrics").await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
        let (mut series, mut kinds) = (HashMap::new(), HashMap::new());
        for line in answer.text().lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(series.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{name} twice");
            }
        }
        Self { series, kinds }
    }

    /// The sum of all series of a name that have these labels.
    fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let fits = |series: &&String| {
            series.split('{').next() == Some(name) && labels.iter().all(|label| series.contains(label.as_str()))
        };
        let found: Vec<_> = self.series.keys().filter(fits).collect();
        assert!(!found.is_empty(), "no series {name}{labels:?}");
        found.into_iter().map(|series| self.series[series]).sum()
    }
}

#[tokio::test]
async fn every_metric_is_there_before_the_first_request() {
    let server = Server::plain("metrics-start").await;
    let scrape = Scrape::of(&server).await;
    let model = ("model", "metrics-start");
    for counter in Counter::ALL {
        assert_eq!(scrape.kinds[counter.name()], "counter");
        assert_eq!(scrape.get(counter.name(), &[model]), 0.0, "{counter:?}");
    }
    for gauge in Gauge::ALL {
        match scrape.kinds.get(gauge.name()) {
            Some(kind) => assert_eq!(kind, "gauge"),
            None => assert!(Gauge::OF_GPUS.contains(gauge), "{gauge:?}"),
        }
    }
    for histogram in Histogram::ALL {
        assert_eq!(scrape.kinds[histogram.name()], "histogram");
        assert_eq!(scrape.get(&format!("{}_count", histogram.name()), &[model]), 0.0);
    }
    assert_eq!(scrape.get("tapline_ready", &[model]), 1.0);
    assert_eq!(scrape.get("tapline_model_info", &[model, ("dtype", "f32"), ("architecture", "simulated")]), 1.0);
    assert_eq!(scrape.get("tapline_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    assert_eq!(scrape.get("tapline_draining", &[]), 0.0);
    assert_eq!(scrape.get("tapline_request_duration_seconds_bucket", &[model, ("le", "0.001")]), 0.0);
    assert_eq!(scrape.get("tapline_batch_commands_bucket", &[model, ("le", "32")]), 0.0);
}

#[tokio::test]
async fn requests_are_counted_once_by_how_they_ended() {
    let (mut gate, hook) = Gate::new();
    let mut setup = Setup::new("metrics-ends", hook);
    setup.limits = Limits { requests: 2, ..Limits::default() };
    setup.policy = Policy { max_commands: 1, ..Policy::default() };
    let server = setup.start().await;
    let model = ("model", "metrics-ends");

    let answered = server.locate_meanwhile(ask(1, "go"));
    gate.event().await;
    let left = server.locate_meanwhile(ask(2, "go"));
    until_inside(&server, 2).await;
    assert_eq!(server.locate(&ask(3, "go")).await.code(), "overloaded");
    let scrape = Scrape::of(&server).await;
    assert_eq!(scrape.get("tapline_rejected_total", &[model, ("reason", "permits")]), 1.0);
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    drop(gate);
    answered.await.unwrap().results();
    until_inside(&server, 0).await;

    let mut unsure = ask(1, "go");
    unsure["min_confidence"] = 1.0.into();
    unsure["commands"] = serde_json::json!(["a", "b", "c"]);
    unsure.as_object_mut().unwrap().remove("command");
    server.locate(&unsure).await.results();
    assert_eq!(server.send(raw("?command=go&space=inches", png(4, 4, 1))).await.code(), "invalid_request");
    assert_eq!(server.send(raw("?command=go&model=gpt", png(4, 4, 1))).await.code(), "unknown_model");
    server.app.drain().advance(tapline::server::Phase::Leaving);
    // An engine counts a batch after it has answered it.
    let counted = "tapline_batch_commands_sum{model=\"metrics-ends\"} 4\n";
    until("the last batch is counted", || telemetry::render(|| ()).contains(counted)).await;

    let scrape = Scrape::of(&server).await;
    let ended = |outcome| scrape.get("tapline_requests_total", &[model, ("route", "/locate"), ("outcome", outcome)]);
    for (outcome, times) in
        [("ok", 1.0), ("no_location", 1.0), ("invalid", 1.0), ("overloaded", 1.0), ("cancelled", 1.0)]
    {
        assert_eq!(ended(outcome), times, "{outcome}");
    }
    assert!(scrape.get("tapline_requests_total", &[("model", "unknown"), ("outcome", "invalid")]) >= 1.0);
    assert_eq!(scrape.get("tapline_request_duration_seconds_count", &[model]), 2.0);
    assert_eq!(scrape.get("tapline_stage_duration_seconds_count", &[model, ("stage", "text")]), 2.0);
    // The second answer found its features in the cache, and had nothing to decode.
    assert_eq!(scrape.get("tapline_stage_duration_seconds_count", &[model, ("stage", "decode")]), 1.0);
    assert_eq!(scrape.get("tapline_feature_cache_total", &[model, ("result", "hit")]), 1.0);
    assert_eq!(scrape.get("tapline_batch_tickets_sum", &[model]), 2.0);
    assert_eq!(scrape.get("tapline_batch_commands_sum", &[model]), 4.0);
    let dropped = scrape.get("tapline_dropped_total", &[model, ("reason", "cancelled")]);
    assert!((0.0..=1.0).contains(&dropped), "the one that left may not have reached the queue");
    let busy = scrape.get("tapline_busy_seconds_total", &[model]);
    assert!(busy > 0.0 && busy < 60.0, "{busy}");
    assert!(scrape.get("tapline_last_step_timestamp_seconds", &[model]) > 1.7e9);
    assert_eq!((scrape.get("tapline_in_flight", &[]), scrape.get("tapline_draining", &[])), (0.0, 1.0));
    assert_eq!(scrape.get("tapline_ready", &[model]), 0.0);
}
