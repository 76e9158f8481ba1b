//! What every handler shares: the engines, the door, the limits, and how far the server is on its way out.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::drain::{Drain, Phase};
use super::error::{ApiError, Code};
use super::fields::shown;
use crate::engine::pool::CpuPool;
use crate::engine::{EngineError, Handle, State, handle};
use crate::models::manifest::Strategy;
use crate::schedule::Admission;
use crate::screenshot::Limits;
use crate::telemetry::{self, Gauge};

/// Limits and times of a server. The limits of what may be inside at once belong to [`Admission`].
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Most bytes of one request's body.
    pub body_bytes: u64,
    /// Most pixels of a screenshot; checked by the header while the body is still arriving. The engines check again.
    pub image: Limits,
    /// Most commands of one request.
    pub max_commands: usize,
    /// Most alternatives one request may ask for.
    pub max_alternatives: usize,
    /// How to decode for a request that does not say `decoding`; `None`: as the model's authors did.
    pub decoding: Option<Strategy>,
    /// Whether a request that does not say `unconstrained` is.
    pub unconstrained: bool,
    /// Time for a request that does not say `timeout_ms`.
    pub default_timeout: Duration,
    /// The longest `timeout_ms`.
    pub max_timeout: Duration,
    /// How long one step of an engine may take before `/health/live` calls the engine dead.
    pub stall_threshold: Duration,
    /// How long requests are still accepted after the signal to end, since balancers need time to notice.
    pub drain_grace: Duration,
    /// How long accepted requests may take to finish after that.
    pub drain_timeout: Duration,
    /// How long a connection may take to send the head of a request; an idle connection is closed after the same time. Must
    /// be longer than a balancer keeps idle connections (60 s is usual), or it will send requests into closing ones.
    pub head_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            image: Limits::default(),
            max_commands: 32,
            max_alternatives: 16,
            decoding: None,
            unconstrained: false,
            default_timeout: Duration::from_mins(1),
            max_timeout: Duration::from_mins(5),
            stall_threshold: handle::STALL_THRESHOLD,
            drain_grace: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            head_timeout: Duration::from_secs(75),
        }
    }
}

/// The state behind the routes. Clones share it.
#[derive(Debug, Clone)]
pub struct App {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engines: Vec<Handle>,
    pool: CpuPool,
    admission: Admission,
    options: ServerOptions,
    drain: Drain,
    started: Duration,
}

impl App {
    /// A server in front of these engines; the first one answers requests that name no model. `pool` takes apart large
    /// bodies, and is best the one the engines decode on. Engines may still be loading.
    #[must_use]
    pub fn new(engines: Vec<Handle>, pool: CpuPool, admission: Admission, options: ServerOptions) -> Self {
        telemetry::register(engines.iter().map(Handle::name), &super::router::COUNTED);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { shared: Arc::new(Shared { engines, pool, admission, options, drain: Drain::default(), started }) }
    }

    /// All engines, the default one first.
    #[must_use]
    pub fn engines(&self) -> &[Handle] {
        &self.shared.engines
    }

    /// The engine of this name, or the first one.
    ///
    /// # Errors
    /// [`Code::UnknownModel`], with the names there are.
    pub fn engine(&self, name: Option<&str>) -> Result<&Handle, ApiError> {
        let mut engines = self.shared.engines.iter();
        let engine = match name {
            Some(name) => engines.find(|engine| engine.name() == name),
            None => engines.next(),
        };
        engine.ok_or_else(|| {
            let served: Vec<_> = self.engines().iter().map(|engine| format!("`{}`", engine.name())).collect();
            ApiError::new(
                Code::UnknownModel,
                format!("no model `{}` is served here", shown(name.unwrap_or("default"))),
                format!("leave out `model`, or name one of: {}", served.join(", ")),
            )
        })
    }

    /// Whether there is any engine that could answer.
    ///
    /// # Errors
    /// As the first engine would: loading, or stopped.
    pub(super) fn check_available(&self) -> Result<(), ApiError> {
        let mut refusal = None;
        for engine in self.engines() {
            let error = match engine.state() {
                State::Ready(_) => return Ok(()),
                State::Loading => EngineError::Loading { model: engine.name().to_owned() },
                State::Stopped(cause) => EngineError::Stopped { cause },
            };
            refusal.get_or_insert(error);
        }
        refusal.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The pool for work that would hold up the async runtime.
    pub(super) fn pool(&self) -> &CpuPool {
        &self.shared.pool
    }

    /// The door.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.shared.admission
    }

    /// Limits and times.
    #[must_use]
    pub fn options(&self) -> &ServerOptions {
        &self.shared.options
    }

    /// How far the server is on its way out.
    #[must_use]
    pub fn drain(&self) -> &Drain {
        &self.shared.drain
    }

    /// Whether the server has been told to end.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.drain().phase() > Phase::Serving
    }

    /// When the server started, as a Unix time.
    pub(super) fn started(&self) -> Duration {
        self.shared.started
    }

    /// Brings the gauges up to date that nobody sets when their value changes.
    pub(super) fn observe(&self) {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        {
            Gauge::InFlight.set(self.admission().in_flight() as f64, &[]);
            Gauge::AdmittedBytes.set(self.admission().admitted_bytes() as f64, &[]);
        }
        Gauge::Draining.set(f64::from(u8::from(self.is_leaving())), &[]);
        for engine in self.engines() {
            let model = ("model", engine.name());
            let State::Ready(profile) = engine.state() else {
                Gauge::Ready.set(0.0, &[model]);
                continue;
            };
            Gauge::Ready.set(f64::from(u8::from(!self.is_leaving())), &[model]);
            let card = &profile.card;
            // The derive on `Precision` says how it is written; a scrape must not fail over it.
            let dtype = serde_json::to_value(card.dtype).unwrap_or_default();
            Gauge::ModelInfo.set(
                1.0,
                &[
                    model,
                    ("architecture", card.architecture),
                    ("revision", card.revision.as_deref().unwrap_or_default()),
                    ("dtype", dtype.as_str().unwrap_or_default()),
                ],
            );
        }
    }
}
