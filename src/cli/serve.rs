//! `tapline serve`: from the configuration to running engines behind a listener. The port is bound first, so that probes
//! are answered while models are downloaded and loaded.

use std::io::ErrorKind;

use tokio::net::TcpListener;

use super::engine::{self, Starting};
use super::{Failure, say};
use crate::config::{Config, ConfigError};
use crate::engine::EngineOptions;
use crate::engine::pool::CpuPool;
use crate::hub::Source;
use crate::schedule::{Admission, Policy, admission};
use crate::screenshot::Limits;
use crate::server::{self, App, ServerOptions};
use crate::telemetry;

pub(super) fn run(config: &Config) -> Result<(), Failure> {
    config.check()?;
    let models = models(config)?;
    telemetry::tracing::init(config.json_output);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::other(error, "raise the limits of processes and open files"))?;
    let outcome = runtime.block_on(serve(config, models));
    // What still runs on it must not keep the process from ending.
    runtime.shutdown_background();
    outcome
}

/// The models to serve, by the names they are served under.
fn models(config: &Config) -> Result<Vec<(String, Source)>, Failure> {
    let mut models: Vec<(String, Source)> = Vec::new();
    let mut names = config.served_model_name.iter();
    for model in &config.model {
        let source = Source::parse(model, config.revision.as_deref())?;
        let name = names.next().cloned().unwrap_or_else(|| source.name());
        if models.iter().any(|(other, _)| *other == name) {
            return Err(ConfigError::SameName { name }.into());
        }
        models.push((name, source));
    }
    Ok(models)
}

async fn serve(config: &Config, models: Vec<(String, Source)>) -> Result<(), Failure> {
    let listener = bind(&config.hostname, config.port).await?;
    let address = listener.local_addr().map_err(|error| Failure::other(error, "choose another `--port`"))?;
    say(format_args!("listening on http://{address}"));

    let image = Limits { pixels: config.max_pixels };
    let pool = CpuPool::new(config.prepare_threads, config.max_concurrent_requests.get())
        .map_err(|error| Failure::other(error, "lower `--prepare-threads`"))?;
    let compute = engine::compute_pool(&config.compute)?;
    let mut engines = Vec::new();
    for (name, source) in models {
        let options = EngineOptions {
            policy: Policy { max_commands: config.max_batch_requests.get(), max_wait: config.max_batch_wait },
            feature_cache_bytes: config.feature_cache_mb << 20,
            screenshot_store_bytes: config.screenshot_cache_mb << 20,
            limits: image,
            compute: compute.clone(),
            ..EngineOptions::new(name)
        };
        engines.push(engine::start(&source, options, &config.compute, pool.clone())?);
    }
    let admission = Admission::new(admission::Limits {
        requests: config.max_concurrent_requests.get(),
        bytes: config.max_admitted_bytes,
        // One screenshot of the largest size must fit.
        pixels: admission::Limits::default().pixels.max(config.max_pixels),
    });
    let handles = engines.iter().map(|engine| engine.handle.clone()).collect();
    let app = App::new(handles, pool, admission, options(config, image));

    let fault = server::supervise(listener, app)
        .await
        .map_err(|error| Failure::other(error, "raise the limit of open files"))?;
    // An engine that did not even start knows more than that.
    let started = |error| engines.iter().find_map(Starting::failure).unwrap_or_else(|| Failure::from(error));
    fault.map(started).map_or(Ok(()), Err)
}

fn options(config: &Config, image: Limits) -> ServerOptions {
    ServerOptions {
        body_bytes: config.payload_limit,
        image,
        max_commands: config.max_client_batch_size.get(),
        decoding: config.decoding.decoding,
        unconstrained: config.decoding.unconstrained,
        default_timeout: config.timeout,
        max_timeout: config.max_timeout,
        stall_threshold: config.stall_threshold,
        drain_grace: config.drain_grace,
        drain_timeout: config.drain_timeout,
        ..ServerOptions::default()
    }
}

async fn bind(hostname: &str, port: u16) -> Result<TcpListener, Failure> {
    TcpListener::bind((hostname, port)).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => Failure::other(
            format!("port {port} of {hostname} is in use"),
            "stop the program that listens there, or choose another `--port`; 0 takes any free one",
        ),
        ErrorKind::PermissionDenied => Failure::other(
            format!("port {port} of {hostname} may not be opened"),
            "choose a `--port` from 1024 up, or give the program the right to low ports",
        ),
        _ => Failure::usage(
            format!("`--hostname {hostname}` cannot be listened on: {error}"),
            "give an address of this machine: 127.0.0.1, or 0.0.0.0 for all",
        ),
    })
}
