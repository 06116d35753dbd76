//! `--record`: a result with where it comes from, appended to a Markdown file.
//!
//! What is appended, and what a test checks:
//!
//! ```text
//! ## `lanemap bench`, 2026-11-30 05:20:11 UTC
//!
//!     lanemap bench -m model.gguf -p 512
//!
//! - commit: 1234567
//! - lanemap: 0.1.0, dev profile
//! - model: model.gguf
//! - device: CPU, avx512, 2 threads, 8-bit activations
//! - processor: AMD EPYC
//! - driver: none in use
//!
//! the result: a table, or lines
//! ```

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use anyhow::Context;
use chrono::Utc;

use super::UsageError;
use super::output::distinct;
use crate::cuda;

/// Where results are kept in a checkout.
const RESULTS: &str = "docs/results.md";

/// Where a result is recorded.
#[derive(Debug, clap::Args)]
pub(super) struct RecordArgs {
    /// Append the result to a Markdown file, with command, commit, device, driver and date [default of FILE: the
    /// checkout's docs/results.md]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    record: Option<Option<PathBuf>>,
}

impl RecordArgs {
    /// The file to append to, if the result is to be recorded; to be asked before anything slow is begun. It is
    /// none of `others`, which the command reads and writes, and it can be written to.
    ///
    /// # Errors
    /// A [`UsageError`] if no file is named and this is no checkout, or for one of the others; when it cannot be
    /// written to.
    pub(super) fn target(&self, others: &[(&str, Option<&Path>)]) -> anyhow::Result<Option<PathBuf>> {
        let path = match &self.record {
            None => {
                distinct(others)?;
                return Ok(None);
            }
            Some(Some(path)) => path.clone(),
            Some(None) => {
                let here = env::current_dir().context("there is no current folder")?;
                let Some(root) = here.ancestors().find(|folder| is_checkout(folder)) else {
                    let message = format!(
                        "--record: there is no {RESULTS} of a checkout here; name a file: --record=FILE"
                    );
                    return Err(UsageError(message).into());
                };
                root.join(RESULTS)
            }
        };
        distinct(&[others, &[("--record", Some(&path))]].concat())?;
        let is_new = !path.exists();
        let opened = OpenOptions::new().append(true).create(true).open(&path);
        opened.with_context(|| format!("--record: cannot write {}", path.display()))?;
        if is_new {
            // Nothing is left where the work fails.
            let _ = fs::canonicalize(&path).and_then(fs::remove_file);
        }
        Ok(Some(path))
    }
}

fn is_checkout(folder: &Path) -> bool {
    folder.join(".git").exists() && folder.join(RESULTS).is_file()
}

/// What a record says beside the result.
#[derive(Debug)]
pub(super) struct Provenance<'a> {
    /// The command: `bench`.
    pub(super) command: &'a str,
    /// The model's file.
    pub(super) model: &'a str,
    /// The device's name on the command line.
    pub(super) device: &'a str,
    /// The backend's description.
    pub(super) description: &'a str,
}

/// Appends what `write` writes, Markdown that ends with a line end, if there is a file for it.
///
/// # Errors
/// When the file cannot be written to.
pub(super) fn append(
    path: Option<&Path>,
    provenance: &Provenance<'_>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let mut result = Vec::new();
    write(&mut result)?;
    let result = String::from_utf8_lossy(&result);
    let Provenance { command, model, device, description } = provenance;
    let arguments: Vec<String> = env::args_os().skip(1).map(|arg| arg.display().to_string()).collect();
    let line: Vec<String> = std::iter::once("lanemap".to_owned())
        .chain(arguments.iter().map(|argument| quoted(argument)))
        .collect();
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let text = format!(
        "## `lanemap {command}`, {}\n\n    {}\n\n- commit: {}\n- lanemap: {}, {profile} profile\n- model: {model}\n- \
         device: {description}\n- processor: {}\n- driver: {}\n\n{result}",
        Utc::now().format("%Y-%m-%d %H:%M:%S UTC"),
        line.join(" "),
        commit(),
        env!("CARGO_PKG_VERSION"),
        processor(),
        driver(device),
    );
    // Where files lie on one machine says nothing elsewhere.
    let words = arguments.iter().map(String::as_str).chain([*model]).flat_map(|argument| {
        argument
            .split_whitespace()
            .chain([argument])
            .map(|word| word.rsplit_once('=').map_or(word, |(_, value)| value))
    });
    let mut paths: Vec<_> = words.filter(|word| Path::new(word).is_absolute()).collect();
    paths.sort_by_key(|path| std::cmp::Reverse(path.len()));
    let text = paths.into_iter().fold(text, |text, path| {
        let name = Path::new(path).file_name().map(|name| name.display().to_string());
        name.map_or_else(|| text.clone(), |name| text.replace(path, &name))
    });
    let write = || {
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        let start = if file.metadata()?.len() == 0 { "# Results\n\n" } else { "\n" };
        file.write_all(format!("{start}{text}").as_bytes())
    };
    write().with_context(|| format!("--record: cannot write {}", path.display()))
}

/// As [`append`], of work on a GPU or the emulator. `command` and `model` as in [`Provenance`].
///
/// # Errors
/// As [`append`].
pub(super) fn append_of_device(
    path: Option<&Path>,
    [command, model]: [&str; 2],
    device: Option<cuda::Device>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let (device, description) = device.map_or_else(
        || ("emulator".to_owned(), "the emulator".to_owned()),
        |device| (format!("cuda:{}", device.description().index), device.description().to_string()),
    );
    append(path, &Provenance { command, model, device: &device, description: &description }, write)
}

/// Lines as a block of code.
pub(super) fn indented(lines: &str) -> String {
    lines.lines().map(|line| format!("    {line}\n")).collect()
}

/// An argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', "'\\''"))
    }
}

/// The commit of the checkout that this program lies in, or of the bundle.
fn commit() -> String {
    let bundled = || {
        let folder = env::current_exe().ok()?.parent()?.to_owned();
        folder.join("run-tests").is_file().then(|| fs::read_to_string(folder.join("commit")).ok())?
    };
    if let Some(commit) = bundled() {
        return commit.trim().to_owned();
    }
    let known = || {
        let program = env::current_exe().ok()?;
        let root = program.ancestors().find(|folder| is_checkout(folder))?;
        let git = |args: &[&str]| {
            let mut command = Command::new("git");
            command.arg("-C").arg(root).args(args).stdin(Stdio::null());
            let output = command.output().ok().filter(|output| output.status.success())?;
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let commit = git(&["log", "-1", "--format=%h %ct"])?;
        let (name, time) = commit.split_once(' ')?;
        let built = fs::metadata(&program).and_then(|file| file.modified()).ok()?;
        let built = built.duration_since(UNIX_EPOCH).ok()?.as_secs();
        let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
        Some(match (built < time.parse().ok()?, changed) {
            (true, _) => format!("older than {name}: the program was built before it"),
            (false, true) => format!("{name}, with changes that are not committed"),
            (false, false) => name.to_owned(),
        })
    };
    known().unwrap_or_else(|| "unknown: the program lies in no checkout".to_owned())
}

/// The processor's name, as far as the system tells it.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// The version of the driver of a device, under its name on the command line.
fn driver(device: &str) -> String {
    let Some(index) = device.strip_prefix("cuda:").and_then(|index| index.parse().ok()) else {
        return "none in use".to_owned();
    };
    match cuda::Device::open(index) {
        Ok(device) => {
            let description = device.description();
            let driver = description.driver.as_deref().unwrap_or("of unknown version");
            format!("{driver}, CUDA {}", description.cuda)
        }
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_for_a_shell() {
        for (argument, expected) in [
            ("-p", "-p"),
            ("--record=docs/results.md", "--record=docs/results.md"),
            ("A=1 old/lanemap", "'A=1 old/lanemap'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
            ("*", "'*'"),
        ] {
            assert_eq!(quoted(argument), expected);
        }
        assert_eq!(indented("a\nb\n"), "    a\n    b\n");
    }
}
