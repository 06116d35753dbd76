//! What the user sees on stderr while a model is fetched.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Not at all.
    Silent,
    /// One plain line for each step, for a log.
    Lines,
    /// The lines, and a moving bar under them.
    Bar,
}

impl Progress {
    /// A bar when stderr is a terminal, plain lines otherwise.
    #[must_use]
    pub fn on_stderr() -> Self {
        if io::stderr().is_terminal() { Self::Bar } else { Self::Lines }
    }

    /// Says something that stays on the screen.
    pub(super) fn say(self, line: impl std::fmt::Display) {
        if self != Self::Silent {
            // Nobody reading it is no reason to panic, as `eprintln!` would.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// Opens a step of `total` bytes; the bar goes away when the step is dropped.
    pub(crate) fn step(self, title: &'static str, total: u64) -> Step {
        if self != Self::Bar {
            return Step(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(total).with_message(title);
        if let Ok(style) = ProgressStyle::with_template(
            "{msg:10} [{bar:30}] {decimal_bytes:>9}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}",
        ) {
            bar.set_style(style.progress_chars("=> "));
        }
        Step(bar)
    }
}

/// One step under way.
#[derive(Debug)]
pub(crate) struct Step(ProgressBar);

impl Step {
    /// `bytes` of the step's total are done.
    pub(crate) fn at(&self, bytes: u64) {
        let total = self.0.length().unwrap_or(u64::MAX);
        self.0.set_position(bytes.min(total));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
