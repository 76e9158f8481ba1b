//! Counts one request exactly once, however it ends, also when its caller goes away and the handler is dropped.

use std::time::Instant;

use super::App;
use super::error::{ApiError, Code};
use super::response::stages;
use crate::engine::{Handle, Reply};
use crate::telemetry::{Counter, Histogram, Outcome};

/// The model of requests for a model that is not served; a caller's word never becomes a label.
const UNKNOWN: &str = "unknown";

/// A request that is being worked on.
#[derive(Debug)]
pub(super) struct Observation {
    /// The default one until the request says otherwise.
    model: String,
    route: &'static str,
    started: Instant,
    /// `None` as long as there is no answer.
    outcome: Option<Outcome>,
}

impl Observation {
    /// A request has arrived.
    pub(super) fn begin(app: &App, route: &'static str) -> Self {
        let model = app.engines().first().map_or(UNKNOWN, Handle::name).to_owned();
        Self { model, route, started: Instant::now(), outcome: None }
    }

    /// The request is for this model.
    pub(super) fn model(&mut self, name: &str) {
        name.clone_into(&mut self.model);
    }

    /// The request has its answer.
    pub(super) fn answered(&mut self, reply: &Reply) {
        let found = reply.groundings.iter().any(|grounding| grounding.found);
        self.outcome = Some(if found { Outcome::Ok } else { Outcome::NoLocation });
        let model = ("model", self.model.as_str());
        for (stage, took) in stages(&reply.timings) {
            if !took.is_zero() {
                Histogram::StageDuration.observe(took.as_secs_f64(), &[model, ("stage", stage)]);
            }
        }
        let took = self.started.elapsed().as_secs_f64();
        Histogram::RequestDuration.observe(took, &[model, ("route", self.route)]);
    }

    /// The request ends with an error.
    pub(super) fn refused(&mut self, error: &ApiError) {
        self.outcome = Some(error.outcome);
        if error.code == Code::UnknownModel {
            UNKNOWN.clone_into(&mut self.model);
        }
        if let Some(reason) = error.refused {
            Counter::Rejected.add(1, &[("model", &self.model), ("reason", reason.as_str())]);
        }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        let unanswered = if std::thread::panicking() { Outcome::Internal } else { Outcome::Cancelled };
        let outcome = self.outcome.unwrap_or(unanswered).as_str();
        Counter::Requests.add(1, &[("model", &self.model), ("route", self.route), ("outcome", outcome)]);
    }
}
