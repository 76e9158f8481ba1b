//! The command line: one file per subcommand. Help texts are the comments of the flags; standard output is data, standard
//! error is talk.

mod annotate;
mod doctor;
mod engine;
mod failure;
mod locate;
mod machine;
mod progress;
mod pull;
mod serve;
mod threads;
mod trace;

use std::ffi::OsString;
use std::io::Write as _;
use std::num::NonZeroUsize;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};

pub use failure::Failure;
pub use threads::VARIABLE as THREADS_VARIABLE;

/// Locates things on screenshots: a screenshot and a command ("click on the Gmail icon") go in, the point to press comes
/// out.
#[derive(Debug, clap::Parser)]
#[command(
    name = "tapline",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(after_help = "Every flag has a twin in the environment, named in its help; a flag wins over it.\n\
                        Try it: tapline locate shot.png \"click on settings\" --out found.png")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Answer over HTTP: POST /locate, an OpenAI-compatible endpoint, health and metrics
    ///
    /// The port is open at once; /health/ready answers 200 when the models are loaded. SIGTERM drains: the server stops
    /// being ready, finishes what it has, and ends with exit code 0. A model that cannot be loaded ends it with 1, a device
    /// that fails or hangs with 70. Log lines go to standard error; `TAPLINE_LOG` sets what is logged.
    Serve(crate::config::Config),
    /// Answer once, without a server: locate commands on a screenshot
    ///
    /// Prints one line for each command: the command, whether it was found, where to press, the element's box, how certain
    /// the model is, and the time it took. The exit code is 0 whether it was found or not.
    Locate(locate::Locate),
    /// Download models, or check the ones that are here
    ///
    /// Files go to the cache of `huggingface_hub` (`HF_HOME`, by default ~/.cache/huggingface), and its folder for each model
    /// is printed. An interrupted download goes on where it stopped. The SHA-256 of weights is checked against the model's
    /// manifest or, without one, against the hub's word; files that are here already are checked again. `HF_ENDPOINT` names
    /// another hub or a mirror, `HF_TOKEN` gives access to closed models, `HF_HUB_OFFLINE=1` only checks what is here.
    Pull(pull::Pull),
    /// Say what this machine can run, and what to do about each problem
    ///
    /// Looks at the processor, threads, memory, GPUs, the cache and the models in it, and loads the embedded model. Nothing
    /// is downloaded or changed. The exit code is 0 unless a check fails.
    Doctor(doctor::Doctor),
}

/// A command line that has been understood.
#[derive(Debug)]
pub struct Invocation {
    command: Command,
    matches: clap::ArgMatches,
}

/// Reads the command line and the environment.
///
/// # Errors
/// What is wrong with it, or the help text that was asked for.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, Failure> {
    let matches = definition().try_get_matches_from(arguments).map_err(|error| usage(&error))?;
    let Cli { command } = Cli::from_arg_matches(&matches).map_err(|error| usage(&error))?;
    Ok(Invocation { command, matches })
}

/// All subcommands and flags.
#[must_use]
pub fn definition() -> clap::Command {
    // What the environment holds at the moment does not belong into a help text.
    Cli::command().mut_subcommands(|command| command.mut_args(|flag| flag.hide_env_values(true)))
}

/// Turns clap's error of many lines into ours of two.
fn usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return Failure::text(text),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => return Failure::misused(text),
        _ => {}
    }
    let mut message = Vec::new();
    let mut hint = None;
    for line in text.lines().map(str::trim) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            hint.get_or_insert_with(|| tip.to_owned());
        } else if line.starts_with("Usage:") {
            break;
        } else if !line.is_empty() && !line.starts_with("For more information") {
            message.push(line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    let hint =
        hint.unwrap_or_else(|| "`tapline --help` lists the subcommands, `tapline SUBCOMMAND --help` the flags".into());
    Failure::usage(message.join(" "), hint)
}

impl Invocation {
    /// Threads that should compute, for the subcommands that do: the flag, or what the user asked of rayon, or what the
    /// machine lends.
    #[must_use]
    pub fn threads(&self) -> Option<NonZeroUsize> {
        let flag = match &self.command {
            Command::Serve(config) => config.compute.threads,
            Command::Locate(locate) => locate.compute.threads,
            Command::Pull(_) | Command::Doctor(_) => return None,
        };
        Some(threads::wanted(flag, std::env::var(threads::VARIABLE).ok().as_deref()))
    }

    /// Does what was asked.
    ///
    /// # Errors
    /// What went wrong, what to do about it, and the exit code.
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Serve(config) if config.print_config => {
                let definition = definition();
                let serve = definition.find_subcommand("serve").zip(self.matches.subcommand_matches("serve"));
                print(&serve.map(|(serve, matches)| crate::config::explain(serve, matches)).unwrap_or_default())
            }
            Command::Serve(config) => serve::run(&config),
            Command::Locate(locate) => locate.run(),
            Command::Pull(pull) => pull.run(),
            Command::Doctor(doctor) => doctor.run(),
        }
    }
}

/// Writes data to standard output. A reader that has seen enough is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::other(format!("standard output cannot be written: {error}"), "is the disk full?"))
        }
        _ => Ok(()),
    }
}

/// Tells whoever watches. That nobody can be told is no reason to stop.
fn say(text: std::fmt::Arguments<'_>) {
    let _nobody = writeln!(std::io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(command: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
        command
            .get_arguments()
            .filter(|flag| !flag.is_positional() && !matches!(flag.get_id().as_str(), "help" | "version"))
    }

    #[test]
    fn every_flag_has_its_twin_and_says_what_it_does() {
        let definition = definition();
        for command in definition.get_subcommands() {
            for flag in flags(command) {
                let name = flag.get_long().expect("every flag has a long name");
                let twin = format!("TAPLINE_{}", name.to_uppercase().replace('-', "_"));
                assert_eq!(flag.get_env().unwrap_or_default(), twin.as_str(), "{} --{name}", command.get_name());
                assert!(flag.get_help().is_some(), "{} --{name} has no help", command.get_name());
            }
            assert!(command.get_about().is_some());
        }
    }

    #[test]
    fn the_definition_holds_together() {
        definition().debug_assert();
    }

    #[test]
    fn mistakes_are_one_line_and_a_hint() {
        let parse = |line: &str| parse(line.split(' ').map(OsString::from)).unwrap_err();
        for line in [
            "tapline serve --port x",
            "tapline serve --prot 1",
            "tapline fly",
            "tapline locate",
            "tapline serve --timeout 5",
        ] {
            let failure = parse(line);
            assert_eq!(failure.to_string().lines().count(), 2, "{failure}");
            assert_eq!(failure.code(), 64, "{failure}");
        }
        assert!(parse("tapline serve --timeout 5").to_string().contains("with its unit"));
        assert!(parse("tapline serve --prot 1").to_string().contains("--port"));
        assert_eq!(parse("tapline serve --help").code(), 0);
        assert_eq!(parse("tapline").code(), 64);
    }

    #[test]
    fn models_may_be_repeated_and_listed() {
        let arguments = ["tapline", "serve", "--model", "pocket,tinyclick", "--model", "a/b"];
        let invocation = super::parse(arguments.map(OsString::from)).unwrap();
        let Command::Serve(config) = invocation.command else { panic!("it is serve") };
        assert_eq!(config.model, ["pocket", "tinyclick", "a/b"]);
    }
}
