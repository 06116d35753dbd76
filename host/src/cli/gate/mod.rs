//! `lanemap gate`: verdicts on the kernels and on whole models.

mod all;
mod identity;
mod parity;
mod subject;
mod tolerance;

/// Gates: is what the kernels compute still right?
///
/// Each prints a table and ends with exit code 1 where something is red.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// The gates.
#[derive(Debug, clap::Subcommand)]
enum Command {
    Parity(parity::Args),
    Identity(identity::Args),
    Tolerance(tolerance::Args),
    All(all::Args),
}

/// Runs `lanemap gate`.
///
/// # Errors
/// A gate that is red, after its report; what keeps it from running.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Parity(args) => parity::run(args),
        Command::Identity(args) => identity::run(args),
        Command::Tolerance(args) => tolerance::run(args),
        Command::All(args) => all::run(args),
    }
}
