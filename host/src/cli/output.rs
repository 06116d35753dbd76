//! Standard output for commands: buffered, its errors reported, a closed pipe a quiet end;
//! and lines on standard error.

use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, Write};

use anyhow::Context;

/// Runs `write` on standard output and flushes it.
///
/// When the reader has gone (`lanemap … | head`) this is a success: there is nothing left to do.
///
/// # Errors
/// Any other failure to write, such as a full disk.
pub fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let result = write(&mut out).and_then(|()| out.flush());
    // What a failed write left in the buffer must not be tried again when it is dropped.
    drop(out.into_parts());
    unless_closed(result).context("cannot write to standard output")
}

/// Takes the error of a closed pipe for a success.
///
/// # Errors
/// Any other error of `result`.
pub fn unless_closed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes a line to standard error. That nobody can read it any more is no reason to end, let
/// alone to panic, as `eprintln!` would.
pub fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_closed_pipe_is_quiet() {
        assert!(unless_closed(Err(ErrorKind::BrokenPipe.into())).is_ok());
        assert!(unless_closed(Err(ErrorKind::StorageFull.into())).is_err());
        assert!(unless_closed(Ok(())).is_ok());
    }
}
