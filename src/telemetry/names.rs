//! Every metric Tapline has, and the only way to record one. What a metric means is written once, here: the comment above a
//! name is also its `# HELP` line.

use super::recorder;

/// Labels of one observation. Values come from small fixed sets and model names, never from requests.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// Upper edges for durations, in seconds: from a cached answer on an accelerator to a large model on a CPU.
pub(super) const SECONDS: [f64; 20] = [
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.010, 0.015, 0.020, 0.030, 0.050, 0.075, 0.100, 0.150, 0.250, 0.500, 1.0, 2.5,
    5.0, 10.0, 30.0,
];
/// Upper edges for sizes of batches.
pub(super) const SIZES: [f64; 10] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0];

macro_rules! names {
    ($(#[$doc:meta])* $kind:ident { $(#[doc = $help:literal] $name:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $kind {
            $(#[doc = concat!("`", $text, "`:", $help)] $name),+
        }

        impl $kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The name in a scrape.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// What it counts, in one sentence.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$name => $help.trim_ascii()),+ }
            }
        }
    };
}

names! {
    /// Counts that only grow.
    Counter {
        /// Requests by how they ended. Labels: model, route, outcome.
        Requests = "tapline_requests_total",
        /// Requests that entered a queue. Labels: model.
        QueuePushed = "tapline_queue_pushed_total",
        /// Requests that left a queue, for a batch or not. Labels: model.
        QueuePopped = "tapline_queue_popped_total",
        /// Requests refused at the door. Labels: model, reason.
        Rejected = "tapline_rejected_total",
        /// Admitted requests that were not computed since nobody waited any more. Labels: model, at, reason.
        Dropped = "tapline_dropped_total",
        /// Look-ups of visual features. Labels: model, result.
        FeatureCache = "tapline_feature_cache_total",
        /// Work that was recorded as a CUDA graph and launched as one, or launched kernel by kernel. Labels: model, result.
        GraphLaunches = "tapline_graph_launches_total",
        /// Time in which an engine was running a batch, in seconds; its rate is the utilisation. Labels: model.
        BusySeconds = "tapline_busy_seconds_total",
    }
}

names! {
    /// Values that go up and down.
    Gauge {
        /// Requests waiting at the last change of the queue. Labels: model.
        QueueDepth = "tapline_queue_depth",
        /// Requests admitted and not yet answered.
        InFlight = "tapline_in_flight",
        /// Bytes of request bodies held.
        AdmittedBytes = "tapline_admitted_bytes",
        /// Bytes of visual features kept. Labels: model.
        FeatureCacheBytes = "tapline_feature_cache_bytes",
        /// When an engine last finished a batch, as a Unix time. Labels: model.
        LastStep = "tapline_last_step_timestamp_seconds",
        /// Whether a model can be asked: 1 or 0. Labels: model.
        Ready = "tapline_ready",
        /// Whether the server is on its way out: 1 or 0.
        Draining = "tapline_draining",
        /// Always 1; the labels say which build this is. Labels: version, features, architecture.
        BuildInfo = "tapline_build_info",
        /// Always 1; the labels say what a loaded model is. Labels: model, architecture, revision, dtype.
        ModelInfo = "tapline_model_info",
        /// Share of the last moments in which a GPU was running anything, by its driver; `tapline_busy_seconds_total` is the better measure. Labels: gpu.
        GpuUtilization = "tapline_gpu_utilization_ratio",
        /// Memory of a GPU. Labels: gpu, kind.
        GpuMemory = "tapline_gpu_memory_bytes",
        /// Power that a GPU draws. Labels: gpu.
        GpuPower = "tapline_gpu_power_watts",
        /// Temperature of a GPU. Labels: gpu.
        GpuTemperature = "tapline_gpu_temperature_celsius",
    }
}

names! {
    /// Distributions.
    Histogram {
        /// From arrival to answer, for requests that were answered. Labels: model, route.
        RequestDuration = "tapline_request_duration_seconds",
        /// Time in one stage of an answered request; a stage that was not needed is left out. Labels: model, stage.
        StageDuration = "tapline_stage_duration_seconds",
        /// Requests in a batch. Labels: model.
        BatchTickets = "tapline_batch_tickets",
        /// Commands in a batch. Labels: model.
        BatchCommands = "tapline_batch_commands",
    }
}

macro_rules! label_values {
    ($(#[$doc:meta])* $kind:ident { $(#[doc = $help:literal] $name:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $kind {
            $(#[doc = $help] $name),+
        }

        impl $kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The label's value.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }
        }
    };
}

label_values! {
    /// How a request ended: the label `outcome` of [`Counter::Requests`].
    Outcome {
        /// Answered with at least one place.
        Ok = "ok",
        /// Answered, and the model found nothing.
        NoLocation = "no_location",
        /// Refused for what it says.
        Invalid = "invalid",
        /// Refused for its size.
        TooLarge = "too_large",
        /// Refused for want of room.
        Overloaded = "overloaded",
        /// Not answered in time.
        Deadline = "deadline",
        /// The caller went away.
        Cancelled = "cancelled",
        /// Loading, draining, or the engine is dead.
        Unavailable = "unavailable",
        /// A fault of the server itself.
        Internal = "internal",
    }
}

label_values! {
    /// Why a request was refused at the door: the label `reason` of [`Counter::Rejected`].
    Reason {
        /// Too many requests inside.
        Permits = "permits",
        /// Too many bytes of bodies inside.
        Bytes = "bytes",
        /// Too many pixels inside.
        Pixels = "pixels",
        /// Too many images waiting to be decoded.
        Decode = "decode",
        /// The model is not loaded yet.
        Loading = "loading",
        /// The server is on its way out.
        Draining = "draining",
        /// The engine has ended.
        Faulted = "faulted",
    }
}

/// The label `stage` of [`Histogram::StageDuration`], in the order in which a request passes them.
pub const STAGES: [&str; 7] = ["read", "decode", "prepare", "queue", "vision", "text", "answer"];
/// The labels `at` and `reason` of [`Counter::Dropped`].
pub const DROPS: [(&str, &str); 3] = [("queue", "cancelled"), ("queue", "expired"), ("dispatch", "cancelled")];
/// The label `result` of [`Counter::FeatureCache`] and [`Counter::GraphLaunches`].
pub const CACHE_RESULTS: [&str; 2] = ["hit", "miss"];

impl Counter {
    /// Adds `amount`: a number of things, but microseconds for [`Counter::BusySeconds`].
    pub fn add(self, amount: u64, labels: Labels<'_>) {
        match self {
            // The recorder's counters are whole numbers, and whole seconds would be far too coarse.
            Self::BusySeconds => recorder::add_micros(self, amount, labels),
            Self::Requests
            | Self::QueuePushed
            | Self::QueuePopped
            | Self::Rejected
            | Self::Dropped
            | Self::FeatureCache
            | Self::GraphLaunches => recorder::counter(self, labels).increment(amount),
        }
    }
}

impl Gauge {
    /// Those that are there where the driver's management library is, and nowhere else.
    pub const OF_GPUS: &[Self] = &[Self::GpuUtilization, Self::GpuMemory, Self::GpuPower, Self::GpuTemperature];

    /// Sets the value.
    pub fn set(self, value: f64, labels: Labels<'_>) {
        recorder::gauge(self, labels).set(value);
    }
}

impl Histogram {
    /// Records one value: seconds for durations, a count for sizes.
    pub fn observe(self, value: f64, labels: Labels<'_>) {
        recorder::histogram(self, labels).record(value);
    }

    /// Upper edges of its buckets.
    #[must_use]
    pub const fn buckets(self) -> &'static [f64] {
        match self {
            Self::RequestDuration | Self::StageDuration => &SECONDS,
            Self::BatchTickets | Self::BatchCommands => &SIZES,
        }
    }
}
