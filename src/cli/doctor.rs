//! `tapline doctor`: what this machine can run, and what to do about each problem.

use std::fmt::Write as _;

use clap::builder::BoolishValueParser;
use indicatif::HumanBytes;
use serde::Serialize;

use super::{Failure, machine, print, threads};
use crate::engine::compute::{ComputePool, Pinning};
use crate::hub::{HubOptions, Repository, Source, free_bytes};
use crate::models::manifest::HubSource;
use crate::models::{self, Checkpoint, LoadOptions, Manifest};

/// Flags of `tapline doctor`.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Model folder or name to check as well: every tensor is loaded. Repeat it for several.
    #[arg(long, env = "TAPLINE_MODEL", value_name = "MODEL", value_delimiter = ',')]
    model: Vec<String>,
    /// Print the checks as JSON.
    #[arg(long, env = "TAPLINE_JSON", value_parser = BoolishValueParser::new())]
    json: bool,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// As it should be.
    Ok,
    /// It runs, but not as well as it could.
    Warn,
    /// It does not run.
    Fail,
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    name: String,
    status: Status,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Ok, found: found.into(), advice: None }
    }

    fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    fn but(self, status: Status, advice: impl Into<String>) -> Self {
        Self { status, ..self.advise(advice) }
    }
}

/// Memory that a model needs beside its weights: activations of one screenshot, the feature cache, the program.
const BESIDE_WEIGHTS: u64 = 700 << 20;

impl Doctor {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let options = HubOptions::from_environment();
        let mut checks = vec![build(), processor(), thread_count(std::env::var(threads::VARIABLE).ok().as_deref())];
        checks.push(memory(machine::free_memory()));
        checks.extend(gpu());
        checks.extend([cache(&options), hub(&options)]);
        checks.push(load("model pocket", &Checkpoint::Embedded));
        checks.extend(Manifest::built_in().iter().filter_map(|manifest| known(manifest, &options)));
        checks.extend(self.model.iter().map(|model| given(model, &options)));
        checks.extend(environment(std::env::vars()));
        print(&if self.json { json(&checks)? } else { table(&checks) })?;
        let failed: Vec<&str> =
            checks.iter().filter(|check| check.status == Status::Fail).map(|check| check.name.as_str()).collect();
        if failed.is_empty() {
            return Ok(());
        }
        Err(Failure::other(format!("failed: {}", failed.join(", ")), "the lines marked `fail` above say what to do"))
    }
}

fn build() -> Check {
    let cuda = if cfg!(feature = "cuda") { "with CUDA" } else { "without CUDA" };
    let kind = if cfg!(debug_assertions) { ", a debug build" } else { "" };
    let found = format!("tapline {} for {}, {cuda}{kind}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let check = Check::ok("build", found);
    if cfg!(debug_assertions) {
        check.but(Status::Warn, "build with --release: it is many times faster")
    } else {
        check
    }
}

fn processor() -> Check {
    let name = machine::processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let instructions = machine::instructions();
    let with: Vec<_> = instructions.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    let check = Check::ok("processor", format!("{name}: {}", with.join(", ")));
    // AVX-512 makes it faster still, but few would buy another machine for it.
    match instructions.iter().find(|(name, has)| !has && matches!(*name, "AVX2" | "FMA" | "NEON")) {
        Some((missing, _)) => {
            check.but(Status::Warn, format!("it has no {missing}: expect a few times the usual latency"))
        }
        None => check,
    }
}

fn thread_count(variable: Option<&str>) -> Check {
    let lent = threads::lent().get();
    let machine = machine::processors().filter(|&all| all > lent);
    let of = machine.map_or_else(String::new, |all| format!(" of the machine's {all}"));
    let wanted = threads::wanted(None, variable).get();
    let pinning = match ComputePool::new(wanted).map(|pool| pool.pinning()) {
        Ok(Pinning::Own) => "each on a processor of its own".to_owned(),
        Ok(Pinning::NotEqual { processors }) => format!("not pinned, on {processors} processors"),
        Ok(Pinning::NotPossible) => "not pinned, which this system does not let us".to_owned(),
        Err(error) => {
            return Check::ok("threads", error.to_string()).but(Status::Fail, "raise the limit of processes");
        }
    };
    let check = Check::ok("threads", format!("{lent} lent to this process{of}, {wanted} compute, {pinning}"));
    let name = threads::VARIABLE;
    match variable {
        Some(text) if text.trim().parse::<std::num::NonZeroUsize>().is_err() => check
            .but(Status::Warn, format!("{name} is `{text}`, which is no number of threads and is ignored: unset it")),
        Some(_) if wanted > lent => check
            .but(Status::Warn, format!("{name} asks for more threads than there are, which slows all down: unset it")),
        Some(_) => check.advise(format!("{name} is set; `--threads` would win over it")),
        None => check,
    }
}

/// Bytes of a model's weights, by its manifest.
fn weights(hub: &HubSource) -> u64 {
    hub.files.iter().filter_map(|file| file.bytes).sum()
}

fn memory(free: Option<u64>) -> Check {
    let Some(free) = free else { return Check::ok("memory", "not known on this system") };
    let check = Check::ok("memory", format!("{} free", HumanBytes(free)));
    let needs = Manifest::built_in().into_iter().filter_map(|manifest| {
        let needed = weights(manifest.hub.as_ref()?) + BESIDE_WEIGHTS;
        (needed > free).then(|| format!("{} needs {} in f32", manifest.name, HumanBytes(needed)))
    });
    let needs: Vec<_> = needs.collect();
    if needs.is_empty() { check } else { check.but(Status::Warn, needs.join(", ")) }
}

fn gpu() -> Vec<Check> {
    let driver = machine::nvidia_driver();
    let gpus = machine::gpus();
    if gpus.is_empty() && driver.is_none() {
        let check = Check::ok("gpu", "no NVIDIA GPU: models run on the processor");
        return vec![if cfg!(feature = "cuda") {
            check.but(Status::Warn, "this build is for GPUs: in a container, pass them with `--gpus all`")
        } else {
            check
        }];
    }
    let driver = driver.unwrap_or_else(|| "of unknown version".to_owned());
    let mut checks = Vec::new();
    for (number, gpu) in gpus.iter().enumerate() {
        let check = Check::ok(format!("gpu {number}"), format!("{}, driver {driver}", gpu.description));
        checks.push(usable(check, number));
    }
    if checks.is_empty() {
        let check = Check::ok("gpu", format!("NVIDIA driver {driver}, but no GPU"));
        checks.push(check.but(Status::Warn, "in a container, pass GPUs with `--gpus all`"));
    }
    checks
}

#[cfg(feature = "cuda")]
fn usable(check: Check, number: usize) -> Check {
    match crate::models::device::open_gpu(number) {
        Ok(_) => check.advise(format!("use it with `--device cuda:{number}`")),
        Err(error) => {
            let found = format!("{}: {}", check.found, first_line(&error.to_string()));
            Check { found, ..check }.but(Status::Fail, error.hint())
        }
    }
}

#[cfg(not(feature = "cuda"))]
fn usable(check: Check, _number: usize) -> Check {
    check.but(Status::Warn, "this build cannot use it: build with `--features cuda` (needs nvcc)")
}

fn cache(options: &HubOptions) -> Check {
    let folder = options.cache.display();
    let free = free_bytes(&options.cache);
    let room = free.map_or_else(String::new, |free| format!(", {} free", HumanBytes(free)));
    let there = if options.cache.is_dir() { "" } else { ", not made yet" };
    let check = Check::ok("cache", format!("{folder}{there}{room}"));
    let largest = Manifest::built_in().iter().filter_map(|manifest| manifest.hub.as_ref()).map(weights).max();
    if !machine::is_writable(&options.cache) {
        return check
            .but(Status::Warn, "it cannot be written, so nothing can be downloaded: set HF_HOME to another folder");
    }
    match (free, largest) {
        (Some(free), Some(largest)) if free < largest => check.but(
            Status::Warn,
            format!("the largest known model has {}: set HF_HOME to a larger disk", HumanBytes(largest)),
        ),
        _ => check,
    }
}

fn hub(options: &HubOptions) -> Check {
    let token = if options.token.is_some() { "with a token" } else { "without a token" };
    let offline = if options.offline { ", offline by HF_HUB_OFFLINE" } else { "" };
    Check::ok("hub", format!("{} {token}{offline}", options.endpoint))
}

/// Loads a model strictly.
fn load(name: &str, checkpoint: &Checkpoint) -> Check {
    match models::load(checkpoint, &LoadOptions::default()) {
        Ok(model) => {
            let card = &model.profile.card;
            #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
            let millions = card.parameters as f64 / 1e6;
            Check::ok(name, format!("loads: {}, {millions:.1} M parameters", card.architecture))
        }
        Err(error) => {
            let advice = Failure::from(error.clone()).hint().to_owned();
            Check::ok(name, first_line(&error.to_string())).but(Status::Fail, advice)
        }
    }
}

/// Whether a known model is in the cache.
fn known(manifest: &Manifest, options: &HubOptions) -> Option<Check> {
    let hub = manifest.hub.as_ref()?;
    let name = format!("model {}", manifest.name);
    let repository = Repository::new(&options.cache, &hub.id);
    let whole = |file: &models::manifest::HubFile| {
        let path = repository.file(&hub.revision, &file.path)?;
        let bytes = fs_err::metadata(path).ok()?.len();
        file.bytes.is_none_or(|expected| expected == bytes).then_some(())
    };
    let missing = hub.files.iter().find(|file| !file.optional && whole(file).is_none());
    Some(match missing {
        None => Check::ok(name, format!("in the cache, commit {}", hub.revision)),
        Some(_) if !repository.snapshot(&hub.revision).is_dir() => {
            Check::ok(name, "not downloaded").advise(format!("`tapline pull {}` brings it, if wanted", manifest.name))
        }
        Some(file) => Check::ok(name, format!("`{}` is missing or not whole", file.path))
            .but(Status::Warn, format!("`tapline pull {}` completes it", manifest.name)),
    })
}

/// A model that was asked about: it must load from what is here.
fn given(model: &str, options: &HubOptions) -> Check {
    let name = format!("model {model}");
    let offline = HubOptions { offline: true, ..options.clone() };
    let resolved = Source::parse(model, None)
        .and_then(|source| crate::hub::resolve(&source, &offline, false, &|_| {}).map(|resolved| resolved.checkpoint));
    match resolved {
        Ok(checkpoint) => load(&name, &checkpoint),
        Err(crate::hub::HubError::Offline { file, .. }) => Check::ok(&name, format!("`{file}` is not in the cache"))
            .but(Status::Fail, format!("`tapline pull {model}` brings it")),
        Err(error) => Check::ok(&name, error.to_string()).but(Status::Fail, error.hint()),
    }
}

/// Variables that change what Tapline does. Secrets are only said to be there.
fn environment(variables: impl Iterator<Item = (String, String)>) -> Option<Check> {
    const OTHERS: [&str; 9] = [
        "RAYON_NUM_THREADS",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_COMPUTE_CAP",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "https_proxy",
        "http_proxy",
    ];
    let mut set: Vec<_> = variables
        .filter(|(name, _)| name.starts_with("TAPLINE_") || name.starts_with("HF_") || OTHERS.contains(&name.as_str()))
        .map(|(name, value)| {
            let is_secret = ["TOKEN", "KEY", "PASSWORD", "PROXY"].iter().any(|word| name.to_uppercase().contains(word));
            if is_secret { format!("{name} is set") } else { format!("{name}={value}") }
        })
        .collect();
    set.sort();
    (!set.is_empty()).then(|| Check::ok("environment", set.join(", ")))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn json(checks: &[Check]) -> Result<String, Failure> {
    let status = checks.iter().map(|check| check.status).max().unwrap_or(Status::Ok);
    let report = serde_json::json!({ "status": status, "checks": checks });
    let text = serde_json::to_string_pretty(&report).map_err(|error| Failure::other(error, "leave out `--json`"))?;
    Ok(text + "\n")
}

fn table(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Check { name, status, found, advice } in checks {
        let status = match status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "fail",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{status:<4}  {name:<width$}  {found}");
        if let Some(advice) = advice {
            let _ = writeln!(text, "{:<6}{:<width$}  -> {advice}", "", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_not_there_are_a_warning() {
        assert_eq!(thread_count(None).status, Status::Ok);
        assert_eq!(thread_count(Some("1")).status, Status::Ok);
        assert_eq!(thread_count(Some("999")).status, Status::Warn);
        assert_eq!(thread_count(Some("many")).status, Status::Warn);
    }

    #[test]
    fn little_memory_is_a_warning_that_names_the_model() {
        let check = memory(Some(1 << 30));
        assert_eq!(check.status, Status::Warn);
        assert!(check.advice.is_some_and(|advice| advice.contains("tinyclick")));
        assert_eq!(memory(Some(1 << 34)).status, Status::Ok);
        assert_eq!(memory(None).status, Status::Ok);
    }

    #[test]
    fn secrets_are_not_shown() {
        let set =
            [("HF_TOKEN", "hf_secret"), ("TAPLINE_PORT", "9"), ("HOME", "/x"), ("HTTPS_PROXY", "http://u:secret@p")];
        let found = environment(set.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()))).unwrap().found;
        assert_eq!(found, "HF_TOKEN is set, HTTPS_PROXY is set, TAPLINE_PORT=9");
    }

    #[test]
    fn the_table_has_a_line_for_each_check_and_one_for_advice() {
        let checks = [Check::ok("a", "fine"), Check::ok("long name", "bad").but(Status::Fail, "mend it")];
        let expected = "ok    a          fine\nfail  long name  bad\n                 -> mend it\n";
        assert_eq!(table(&checks), expected);
    }
}
