//! The binary `lanemap`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lanemap::cli::main()
}
