//! A model of random weights in a file.

use std::io;
use std::path::{Path, PathBuf};

use super::{Progress, Synth};
use crate::folder::folder_of;

/// Why there is no file. Nothing is left of it then.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// It is there already.
    #[error("{}: there is a file already; --force replaces it", .0.display())]
    Exists(PathBuf),
    /// A folder or a device has its name.
    #[error("{}: is no regular file, and is not replaced", .0.display())]
    NotAFile(PathBuf),
    /// The disk cannot hold it.
    #[error("{}: the model takes {wanted} bytes, and the disk has {free} free: free some space, or write to another disk", path.display())]
    Space {
        /// The file to be.
        path: PathBuf,
        /// Its bytes.
        wanted: u64,
        /// Bytes that may be written.
        free: u64,
    },
    /// It cannot be written, or the work was ended.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file to be.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Synth {
    /// Writes the model to a file that has another name until it is whole; with `replace`, over one that is
    /// there. A process that is killed leaves a file `NAME.….part`.
    ///
    /// # Errors
    /// A file that is there, a disk that is too small or full, and that of `progress`.
    pub fn write_file(
        &self,
        path: &Path,
        replace: bool,
        progress: &mut Progress<'_>,
    ) -> Result<(), SynthError> {
        let io_error = |source| SynthError::Io { path: path.to_owned(), source };
        // Neither a folder nor a device is ever replaced; a dangling link is something that is there.
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            return Err(SynthError::NotAFile(path.to_owned()));
        }
        if !replace && path.symlink_metadata().is_ok() {
            return Err(SynthError::Exists(path.to_owned()));
        }
        let name = path.file_name().ok_or_else(|| io_error(io::ErrorKind::InvalidFilename.into()))?;
        let folder = folder_of(path).map_err(io_error)?;
        if let Some(free) = free_bytes(folder)
            && free < self.file_bytes()
        {
            return Err(SynthError::Space { path: path.to_owned(), wanted: self.file_bytes(), free });
        }

        let mut prefix = name.to_owned();
        prefix.push(".");
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".part");
        // Temporary files are for their owner alone; this one is to be as any other.
        #[cfg(unix)]
        builder.permissions(<std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
        let mut part = builder.tempfile_in(folder).map_err(io_error)?;
        self.write_to(&mut part, progress).map_err(io_error)?;
        part.as_file().sync_all().map_err(io_error)?;
        let placed = if replace { part.persist(path) } else { part.persist_noclobber(path) };
        placed.map(drop).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => SynthError::Exists(path.to_owned()),
            _ => io_error(error.error),
        })
    }
}

/// Bytes that may be written to a folder's disk, where the system tells.
#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}
