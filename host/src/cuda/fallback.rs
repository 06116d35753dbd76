//! Slower kernels that run in place of others.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tracing::warn;

/// Warns that the kernel `slower` runs, and why: once in a process, not once a launch. Whether it did.
pub(super) fn warn_once(why: &str, slower: &str) -> bool {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let warning = format!("{why}; {slower} runs instead");
    let is_new = SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(warning.clone());
    if is_new {
        warn!("{warning}");
    }
    is_new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_comes_once() {
        let said = ["head size 7", "head size 7", "head size 9"].map(|why| warn_once(why, "a_slow_kernel"));
        assert_eq!(said, [true, false, true]);
    }
}
