//! The command line: one file a command, each with its arguments and its `run`.
//!
//! Exit codes: 0 success, 1 failure, 2 usage (a wrong flag or value, a refused input).

pub mod pull;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs quantized language models from GGUF files.
#[derive(Debug, Parser)]
#[command(name = "lanemap", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The commands, in the order in which the help lists them.
#[derive(Debug, Subcommand)]
enum Command {
    Pull(pull::Args),
}

/// An error that is the caller's to mend: a wrong flag, value or input. Ends with exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Parses the process's arguments, runs the command and reports its error in one line.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result: anyhow::Result<()> = match cli.command {
        Command::Pull(args) => pull::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.downcast_ref::<UsageError>().is_some() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
