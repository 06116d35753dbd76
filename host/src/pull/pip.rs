//! Fetching one package with the user's own pip.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::FetchError;

/// How often the growth of the download is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Has `python -m pip` download the wheel of `requirement` into `folder`, which is empty and
/// nobody else's, and returns its path. `on_bytes` hears how many bytes have arrived.
///
/// pip runs in `folder`: `python -m` would otherwise import whatever is called `pip` in the
/// user's working directory.
///
/// # Errors
/// When Python does not start, or pip does not deliver.
pub(super) fn download(
    python: &OsStr,
    requirement: &str,
    folder: &Path,
    mut on_bytes: impl FnMut(u64),
) -> Result<PathBuf, FetchError> {
    // pip downloads into its temporary folder and copies the whole wheel to its target, so
    // the growth is seen in the former, and the latter may hold half a wheel.
    let temporary = folder.join("tmp");
    let target = folder.join("target");
    for path in [&temporary, &target] {
        fs::create_dir_all(path).map_err(|error| other(&error))?;
    }
    let mut child = Command::new(python)
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"])
        .args(["--disable-pip-version-check", "--progress-bar=off", "--dest"])
        .arg(&target)
        .arg(requirement)
        .current_dir(folder)
        .envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, &temporary)))
        // Nothing gets installed, so the user's rule about installing does not apply.
        .env("PIP_REQUIRE_VIRTUALENV", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| FetchError::NoPython(python.display().to_string(), error.to_string()))?;
    let stderr = read_stderr(&mut child);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| other(&error))? {
            break status;
        }
        on_bytes(bytes_in(&temporary).max(bytes_in(&target)));
        thread::sleep(POLL);
    };
    let stderr = stderr.join().unwrap_or_default();
    if !status.success() {
        return Err(diagnose(&stderr, &status.to_string()));
    }
    find_wheel(&target).ok_or_else(|| FetchError::Other("it reported success and left no wheel".into()))
}

/// Collects the child's stderr, so that its pipe never fills up.
fn read_stderr(child: &mut Child) -> thread::JoinHandle<String> {
    let stderr = child.stderr.take();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stderr) = stderr {
            // What was read before an error is still worth showing.
            let _ = stderr.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The cause of a failure, from what pip wrote.
fn diagnose(stderr: &str, status: &str) -> FetchError {
    let says = |text: &str| stderr.contains(text);
    let line = last_line(stderr).unwrap_or(status).to_owned();
    if says("No module named pip") {
        FetchError::NoPip
    } else if says("No space left on device") || says("Disk quota exceeded") {
        FetchError::DiskFull
    } else if says("Operation cancelled by user") {
        FetchError::Interrupted
    } else if let Some(reason) = lost_connection(stderr) {
        FetchError::NoNetwork(reason.to_owned())
    } else if says("No matching distribution found") {
        FetchError::NotFound(line)
    } else {
        FetchError::Other(line)
    }
}

/// Why pip's last connection failed, without the addresses of Python objects before it.
fn lost_connection(stderr: &str) -> Option<&str> {
    /// What urllib3, which pip brings with it, calls it when a connection fails.
    const NAMES: [&str; 6] = [
        "NewConnectionError",
        "NameResolutionError",
        "ConnectTimeout",
        "ReadTimeout",
        "ProxyError",
        "SSLError",
    ];
    let line = stderr.lines().rev().find(|line| NAMES.iter().any(|name| line.contains(name)))?;
    let reason = line.rsplit_once("broken by '").map_or(line, |(_, reason)| reason);
    let reason = reason.rsplit_once(">: ").map_or(reason, |(_, reason)| reason);
    Some(reason.split_once("')").map_or(reason, |(reason, _)| reason).trim())
}

/// pip's last error, or else its last line.
fn last_line(stderr: &str) -> Option<&str> {
    let lines = || stderr.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    lines().find_map(|line| line.strip_prefix("ERROR: ")).or_else(|| lines().next())
}

/// The bytes of all files under `folder`. Files come and go meanwhile: what cannot be read
/// counts nothing.
fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let metadata = entry.metadata().ok()?;
            Some(if metadata.is_dir() { bytes_in(&entry.path()) } else { metadata.len() })
        })
        .sum()
}

/// The wheel in `folder`.
fn find_wheel(folder: &Path) -> Option<PathBuf> {
    let mut paths = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| path.extension() == Some(OsStr::new("whl")))
}

fn other(error: &io::Error) -> FetchError {
    FetchError::Other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart() {
        let cases = [
            ("/usr/bin/python3: No module named pip\n", FetchError::NoPip),
            (
                "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<x object \
                 at 0x7f>: Failed to establish a new connection: [Errno 111] Connection refused')': /x/\n\
                 ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)\n\
                 ERROR: No matching distribution found for x==1\n",
                FetchError::NoNetwork(
                    "Failed to establish a new connection: [Errno 111] Connection refused".into(),
                ),
            ),
            (
                "ERROR: No matching distribution found for x==1\n\n[notice] A new release of pip\n",
                FetchError::NotFound("No matching distribution found for x==1".into()),
            ),
            ("ERROR: Could not install: [Errno 28] No space left on device\n", FetchError::DiskFull),
            ("ERROR: Operation cancelled by user\n", FetchError::Interrupted),
            ("Traceback\n  ...\nKeyError: 'x'\n\n", FetchError::Other("KeyError: 'x'".into())),
            ("", FetchError::Other("exit status: 3".into())),
        ];
        for (stderr, expected) in cases {
            assert_eq!(diagnose(stderr, "exit status: 3"), expected, "{stderr}");
        }
    }
}
