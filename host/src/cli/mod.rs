//! The command line: one file a command, each with its arguments and its `run`.
//!
//! Exit codes: 0 success, 1 failure, 2 usage (a wrong flag or value, a refused input).

pub mod bench;
pub mod device;
pub mod devices;
pub mod experiment;
pub mod gate;
pub mod generate;
pub mod inspect;
mod interrupt;
pub mod kernels;
mod load;
mod logging;
mod machine;
pub mod output;
pub mod perplexity;
pub mod profile;
mod prompt;
pub mod pull;
mod record;
pub mod show;
pub mod synth;
pub mod tokenize;
mod usage;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, Parser, Subcommand};

/// Runs quantized language models from GGUF files.
#[derive(Debug, Parser)]
#[command(name = "lanemap", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Log more to stderr: -v what is done, -vv how, -vvv everything; without it, as RUST_LOG says
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

/// The commands, in the order in which the help lists them.
#[derive(Debug, Subcommand)]
enum Command {
    Generate(Box<generate::Args>),
    Tokenize(tokenize::Args),
    Bench(bench::Args),
    Perplexity(perplexity::Args),
    Profile(profile::Args),
    Pull(pull::Args),
    Synth(synth::Args),
    Inspect(inspect::Args),
    Show(show::Args),
    Devices(devices::Args),
    Kernels(kernels::Args),
    Experiment(experiment::Args),
    Gate(gate::Args),
}

/// An error that is the caller's to mend: a wrong flag, value or input. Ends with exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

const EXIT_USAGE: u8 = 2;

/// Parses the process's arguments, runs the command and reports its error in one line.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error),
    };
    logging::start(cli.verbose);
    let result = match &cli.command {
        Command::Generate(args) => generate::run(args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Perplexity(args) => perplexity::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Pull(args) => pull::run(args),
        Command::Synth(args) => synth::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Show(args) => show::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Kernels(args) => kernels::run(args),
        Command::Experiment(args) => experiment::run(args),
        Command::Gate(args) => gate::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(format_args!("error: {}", one_line(&error)));
            if error.downcast_ref::<UsageError>().is_some() {
                ExitCode::from(EXIT_USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// An error and its causes; not those that what is before them says already.
fn one_line(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |line, cause| {
        if line.is_empty() {
            cause
        } else if line.contains(&cause) {
            line
        } else {
            format!("{line}: {cause}")
        }
    })
}

/// Prints the help or the version where that was asked for, else what is wrong.
fn unparsed(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Whoever closed the pipe has read enough.
            let _ = error.print();
        }
        _ => output::note(usage::one_line(error)),
    }
    if error.exit_code() == 0 { ExitCode::SUCCESS } else { ExitCode::from(EXIT_USAGE) }
}
