//! `tools/bundle` and what it puts beside the executables, with small scripts in the executables' place.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Puts a program where it is run. Another process does it: a file that this one has open for writing while a
/// thread of another test starts a program is "busy" until that has begun.
fn place(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).arg(from).arg(to).status().unwrap();
    assert!(status.success(), "{}", to.display());
}

fn write(path: &Path, script: &str) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "#!/usr/bin/env bash\n{script}\n").unwrap();
    place(file.path(), path);
}

/// A bundle whose program prints its arguments, and whose tests are these scripts.
fn bundle(tests: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for script in ["run-tests", "run-bench"] {
        place(&root().join("tools/on-gpu").join(script), &folder.path().join(script));
    }
    fs::write(folder.path().join("commit"), "0123456789ab\n").unwrap();
    fs::create_dir(folder.path().join("tests")).unwrap();
    write(&folder.path().join("lanemap"), "echo \"lanemap: $*\"");
    for (name, script) in tests {
        write(&folder.path().join("tests").join(name), script);
    }
    folder
}

fn run(folder: &tempfile::TempDir, script: &str, args: &[&str]) -> (Output, String) {
    let output = Command::new(folder.path().join(script)).args(args).current_dir("/").output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

const GREEN: &str = "echo \"arguments: $*\"; echo 'NO DEVICE: a::device: there is none' >&2
echo 'test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.01s'";
const RED: &str =
    "echo 'test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out'; exit 101";

#[test]
fn shells_can_read_the_scripts() {
    for script in ["tools/bundle", "tools/on-gpu/run-tests", "tools/on-gpu/run-bench"] {
        let path = root().join(script);
        assert!(fs::metadata(&path).unwrap().permissions().mode() & 0o111 != 0, "{script} is not executable");
        let output = Command::new("bash").arg("-n").arg(path).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for args in [&[][..], &["--help"], &["a", "b"]] {
        let output = Command::new(root().join("tools/bundle")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: tools/bundle"), "{args:?}");
    }
    let full = bundle(&[]);
    fs::remove_file(full.path().join("run-tests")).unwrap();
    let output = Command::new(root().join("tools/bundle")).arg(full.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "a folder of something else is left alone");
    assert!(full.path().join("lanemap").exists());
}

#[test]
fn tests_are_run_and_counted() {
    let folder = bundle(&[("a", GREEN), ("b", GREEN)]);
    let (output, text) = run(&folder, "run-tests", &["device"]);
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("lanemap 0123456789ab\nlanemap: devices\n"), "{text}");
    assert!(text.contains("=== a\narguments: --nocapture --skip emulated device\n"), "{text}");
    assert!(
        text.ends_with("\nNO DEVICE: 2 tests had none, and passed without one\n6 passed, 0 failed\n"),
        "{text}"
    );
    let (_, text) = run(&folder, "run-tests", &["--emulated"]);
    assert!(text.contains("arguments: --nocapture\n"), "{text}");
}

#[test]
fn a_test_that_fails_or_dies_fails_the_run() {
    let (output, text) = run(&bundle(&[("a", RED), ("b", GREEN), ("c", "kill -SEGV $$")]), "run-tests", &[]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.ends_with("\n4 passed, 2 failed\nFAILED: a c\n"), "{text}");
}

#[test]
fn the_bench_names_the_model_to_all_it_runs() {
    let folder = bundle(&[]);
    let commands = |args: &[&str]| {
        let (output, text) = run(&folder, "run-bench", args);
        assert!(output.status.success(), "{text}");
        text.lines().filter_map(|line| line.strip_prefix("lanemap: ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = commands(&[]);
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[1..].iter().all(|line| line.ends_with(" --synth qwen2-7b:q4_k_m")), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("--against")), "{lines:?}");
    let lines = commands(&["--against", "l/llama-bench", "-m", "a.gguf"]);
    assert!(lines[1].ends_with(" --against l/llama-bench -m a.gguf"), "{lines:?}");
    assert!(
        lines[2..].iter().all(|line| line.ends_with(" -m a.gguf") && !line.contains("against")),
        "{lines:?}"
    );
    let (output, _) = run(&folder, "run-bench", &["--against"]);
    assert!(!output.status.success(), "without a path");
}

/// What goes into a bundle runs without this folder.
#[test]
fn tests_that_ask_a_device_need_no_file_besides_themselves() {
    let mut count = 0;
    for entry in fs::read_dir(root().join("tests")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") || path.ends_with("bundle.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        if text.contains("\"support/machine.rs\"") {
            count += 1;
            for needs in ["CARGO_BIN_EXE", "CARGO_MANIFEST_DIR", "support::command", "support::models"] {
                assert!(!text.contains(needs), "{}: {needs}", path.display());
            }
        }
    }
    assert!(count > 20, "{count} tests");
}
