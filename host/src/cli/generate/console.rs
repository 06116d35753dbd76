//! The user's side of a generation: text on stdout, a progress bar on stderr.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

use super::generation::Surroundings;
use crate::cli::interrupt;

/// Streams the text, unless it is wanted in one piece at the end.
#[derive(Debug)]
pub(super) struct Console {
    stream: bool,
    /// Draws only where stderr is a terminal.
    bar: ProgressBar,
    line_is_open: bool,
}

impl Console {
    /// Says that the model is being loaded.
    pub(super) fn new(stream: bool) -> Self {
        Self { stream, bar: bar(0, "{spinner} loading"), line_is_open: false }
    }

    /// Hears that the model is loaded; until the prompt is read nothing is shown.
    pub(super) fn loaded(&self) {
        self.bar.finish_and_clear();
    }

    /// Takes the bar away, and ends the last line where that is what a person would see. A
    /// file or a pipe gets the text alone.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.bar.finish_and_clear();
        let mut out = io::stdout();
        if self.line_is_open && out.is_terminal() {
            out.write_all(b"\n")?;
            out.flush()?;
        }
        Ok(())
    }
}

fn bar(total: usize, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(total as u64).with_finish(ProgressFinish::AndClear);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.tick();
    bar
}

impl Surroundings for Console {
    fn show(&mut self, text: &str) -> io::Result<()> {
        if !self.stream {
            return Ok(());
        }
        self.bar.finish_and_clear();
        self.line_is_open = !text.ends_with('\n');
        let mut out = io::stdout();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    fn prefilled(&mut self, done: usize, total: usize) {
        if done == 0 {
            self.bar = bar(total, "prompt [{bar:30}] {pos}/{len} tokens");
        }
        self.bar.set_position(done as u64);
    }

    fn interrupted(&self) -> bool {
        interrupt::requested()
    }
}
