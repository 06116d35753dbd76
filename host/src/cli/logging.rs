//! Log lines on stderr: warnings, and more with `-v` or `RUST_LOG`.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// Starts logging. `verbosity` counts the `-v`; without one, `RUST_LOG` decides.
pub(super) fn start(verbosity: u8) {
    let level = match verbosity {
        0 => "warn",
        1 => "warn,lanemap=info",
        2 => "warn,lanemap=debug",
        _ => "trace",
    };
    let asked = if verbosity == 0 { EnvFilter::try_from_default_env().ok() } else { None };
    tracing_subscriber::fmt()
        .with_env_filter(asked.unwrap_or_else(|| EnvFilter::new(level)))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // A closed stderr is no reason to end.
        .log_internal_errors(false)
        .with_target(false)
        .without_time()
        .init();
}
