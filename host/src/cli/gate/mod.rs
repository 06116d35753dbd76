//! `lanemap gate`: verdicts on the kernels and on whole models.

mod parity;
mod place;

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
}

/// Runs `lanemap gate`.
///
/// # Errors
/// A gate that is red, after its report; what keeps it from running.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Parity(args) => parity::run(args),
    }
}
