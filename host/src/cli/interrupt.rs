//! Ctrl-C: the first one asks the work to stop, the second one quits.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

/// The exit code of a program that the interrupt signal ended, as shells count it.
const EXIT_INTERRUPTED: i32 = 130;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From here on the first interrupt or termination signal sets [`requested`], and the second
/// one ends the process.
///
/// # Errors
/// When the handler cannot be installed, or one is installed already.
pub(super) fn install() -> anyhow::Result<()> {
    let handler = || {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            process::exit(EXIT_INTERRUPTED);
        }
    };
    ctrlc::set_handler(handler).context("cannot install the handler of Ctrl-C")
}

/// Whether a stop was asked for.
pub(super) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
