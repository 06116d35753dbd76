//! Standard output for commands: buffered, its errors reported, a closed pipe a quiet end;
//! lines on standard error; and files that flags name.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::UsageError;

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

/// A file that a flag names. It is opened before the work whose result it gets, which is lost where it cannot be
/// written; until there is a result, what it holds stays.
#[derive(Debug)]
pub struct OutputFile {
    flag: &'static str,
    path: PathBuf,
    file: File,
    /// Whether it is there only because it was opened.
    is_new: bool,
}

impl OutputFile {
    /// Opens the file at `path`, which `flag` names.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(flag: &'static str, path: &Path) -> anyhow::Result<Self> {
        // Not `exists`, for which a link to nothing is nothing.
        let is_new = fs::symlink_metadata(path).is_err();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.with_context(|| format!("{flag}: cannot write {}", path.display()))?;
        Ok(Self { flag, path: path.to_path_buf(), file, is_new })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has `write` write it anew, and says so.
    ///
    /// # Errors
    /// What `write` returns; when the file cannot be written.
    pub fn write(mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        self.is_new = false;
        let all = || {
            // A pipe or a terminal has no length.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            let mut out = BufWriter::new(&self.file);
            write(&mut out)?;
            out.flush()
        };
        all().with_context(|| format!("{}: cannot write {}", self.flag, self.path.display()))?;
        note(format_args!("wrote {}", self.path.display()));
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_new {
            // Nothing was written: an empty file helps nobody, and hurts nobody either.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// That no two of these paths, each with what it is called, lead to one file: what is written to one would be lost
/// in the other. A path that is not there is where it would be.
///
/// # Errors
/// A [`UsageError`] that names both.
pub fn distinct(files: &[(&str, Option<&Path>)]) -> Result<(), UsageError> {
    for (at, (name, path)) in files.iter().enumerate() {
        for (other_name, other) in &files[at + 1..] {
            if let (Some(path), Some(other)) = (path, other)
                && is_same_file(path, other)
            {
                let message = format!("{name} and {other_name} are both {}: name two files", path.display());
                return Err(UsageError(message));
            }
        }
    }
    Ok(())
}

/// Whether both paths lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    // Also by two names of one file.
    #[cfg(unix)]
    if let (Ok(one), Ok(other)) = (fs::metadata(one), fs::metadata(other)) {
        use std::os::unix::fs::MetadataExt;
        return (one.dev(), one.ino()) == (other.dev(), other.ino());
    }
    let place = |path: &Path| {
        fs::canonicalize(path).ok().or_else(|| {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Some(fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?.join(path.file_name()?))
        })
    };
    place(one).is_some_and(|one| place(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_first_and_replaced_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let [new, old] = ["new", "old"].map(|name| folder.path().join(name));
        fs::write(&old, "what was there, and longer").expect("written");
        for path in [&new, &old] {
            drop(OutputFile::open("--svg", path).expect("it can be written"));
        }
        assert!(!new.exists(), "nothing was written, and nothing is left");
        assert_eq!(fs::read_to_string(&old).expect("read"), "what was there, and longer");
        for path in [&new, &old] {
            let file = OutputFile::open("--svg", path).expect("it can be written");
            file.write(|out| out.write_all(b"short")).expect("written");
            assert_eq!(fs::read_to_string(path).expect("read"), "short");
        }
        fs::remove_file(&new).expect("it is there");
        fs::hard_link(&old, folder.path().join("link")).expect("a second name");
        let around = |name: &str| folder.path().join(".").join(name);
        let names = [("a", Some(&*old)), ("b", None), ("c", Some(&*new))];
        assert!(distinct(&names).is_ok());
        for same in [around("old"), around("new"), around("link")] {
            let error = distinct(&[&names[..], &[("d", Some(&*same))]].concat()).expect_err("one file");
            assert!(error.to_string().contains(" and d are both "), "{error}");
        }
        let error = OutputFile::open("--svg", &folder.path().join("no").join("x")).expect_err("no folder");
        assert!(error.to_string().starts_with("--svg: cannot write "), "{error}");
    }

    #[test]
    fn only_a_closed_pipe_is_quiet() {
        assert!(unless_closed(Err(ErrorKind::BrokenPipe.into())).is_ok());
        assert!(unless_closed(Err(ErrorKind::StorageFull.into())).is_err());
        assert!(unless_closed(Ok(())).is_ok());
    }
}
