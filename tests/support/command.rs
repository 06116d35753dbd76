//! The program as a user runs it, and what it prints.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// `lanemap generate` with these arguments and nothing on stdin.
pub(crate) fn generate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
    command.arg("generate").args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs a command with bytes on its stdin.
pub(crate) fn feed(command: &mut Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The object that `--json` prints, which is all that is on stdout.
#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1);
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Exit code `code`, nothing on stdout, and one line on stderr that has `parts`.
#[track_caller]
pub(crate) fn assert_refused(output: &Output, code: i32, parts: &[&str]) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("error: ") && !stderr.contains("panicked"), "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "no {part:?} in {stderr}");
    }
}
