//! Slower kernels that run in place of others.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tracing::warn;

/// Warns that the kernel `slower` runs, and why: once in a process, not once a launch.
pub(super) fn warn_once(why: &str, slower: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let warning = format!("{why}; {slower} runs instead");
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(warning.clone()) {
        warn!("{warning}");
    }
}
