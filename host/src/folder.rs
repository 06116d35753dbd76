//! The folder that a file is to be written into.

use std::io;
use std::path::Path;

/// The folder of a file that is to be written. A file beside it, which takes its name when it is whole, would be refused
/// under that other name where the folder is not there.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] with the folder's name if it is not there; [`io::ErrorKind::NotADirectory`] if it is
/// something else.
pub(crate) fn folder_of(path: &Path) -> io::Result<&Path> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (kind, what) = match folder.metadata() {
        Ok(found) if found.is_dir() => return Ok(folder),
        Ok(_) => (io::ErrorKind::NotADirectory, "is a file"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (io::ErrorKind::NotFound, "is not there: create it first")
        }
        Err(error) => return Err(error),
    };
    Err(io::Error::new(kind, format!("the folder {} {what}", folder.display())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        assert_eq!(folder_of(Path::new("file")).unwrap(), Path::new("."));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(folder_of(&folder.path().join("file")).unwrap(), folder.path());
        let missing = folder.path().join("missing");
        let error = folder_of(&missing.join("file")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(
            error.to_string(),
            format!("the folder {} is not there: create it first", missing.display())
        );
        std::fs::write(&missing, "").unwrap();
        let error = folder_of(&missing.join("file")).unwrap_err();
        assert_eq!(error.to_string(), format!("the folder {} is a file", missing.display()));
    }
}
