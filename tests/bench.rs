//! `lanemap bench` on a tiny model: which tests it runs, what it prints, and how it runs other programs.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::process::{Command, Output, Stdio};

use lanemap::bench::{Test, run};
use serde_json::{Value, json};
use support::command::{assert_refused, text};
use support::gguf::Folder;
use support::loaded::Loaded;
use support::tiny::{Spec, Tiny};

/// The model in a file.
struct Model {
    folder: Folder,
    path: String,
}

impl Model {
    fn new() -> Self {
        let folder = Folder::new();
        let path = Tiny::new(Spec::LLAMA).write(&folder).to_str().unwrap().to_owned();
        Self { folder, path }
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
        command.args(["bench", "-m", &self.path, "-t", "1", "--device", "cpu"]).args(args);
        command.env_remove("RUST_LOG").env_remove("LANEMAP_CPU").stdin(Stdio::null()).output().unwrap()
    }

    #[track_caller]
    fn rows(&self, args: &[&str]) -> Vec<Value> {
        let output = self.run(&[args, &["-o", "jsonl"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[test]
fn every_combination_is_measured() {
    let model = Model::new();
    let rows =
        model.rows(&["-p", "5,70", "-n", "3", "-d", "0,4", "--sequences", "1,3", "-r", "2", "-b", "16"]);
    let key =
        |row: &Value| ["n_prompt", "n_gen", "n_depth", "n_sequences"].map(|name| row[name].as_u64().unwrap());
    let one = |depth| [[5, 0, depth, 1], [70, 0, depth, 1], [0, 3, depth, 1], [0, 3, depth, 3]];
    assert_eq!(rows.iter().map(key).collect::<Vec<_>>(), [one(0), one(4)].concat());
    for row in &rows {
        let [n_prompt, n_gen, _, n_sequences] = key(row);
        let (times, rates) = (row["samples_ns"].as_array().unwrap(), row["samples_ts"].as_array().unwrap());
        assert_eq!((times.len(), rates.len()), (2, 2));
        // Tokens of all sequences.
        let tokens = ((n_prompt + n_gen) * n_sequences) as f64;
        for (time, rate) in times.iter().zip(rates) {
            let expected = tokens / (time.as_f64().unwrap() / 1e9);
            assert!((rate.as_f64().unwrap() / expected - 1.0).abs() < 1e-6, "{row}");
        }
        let middle = rates.iter().map(|rate| rate.as_f64().unwrap()).sum::<f64>() / 2.0;
        assert!((row["median_ts"].as_f64().unwrap() / middle - 1.0).abs() < 1e-9, "{row}");
    }
    let table = model.run(&["-p", "0", "-n", "2", "-d", "3", "-r", "1", "--no-warmup"]);
    assert!(text(&table.stdout).contains(" tg2 @ d3 |"), "{}", text(&table.stdout));
    let csv = text(&model.run(&["-p", "4", "-n", "0", "-r", "1", "-o", "csv"]).stdout);
    assert!(csv.starts_with("build_version,") && csv.lines().count() == 2, "{csv}");
}

#[test]
fn the_context_holds_what_the_depth_says() {
    let loaded = Loaded::new(&Tiny::new(Spec::LLAMA));
    let mut session = loaded.sessions(false, 1, 3);
    for (test, end) in [
        (Test::prefill(9, 100), 109),
        (Test::decode(5, 7, 3), 12),
        (Test::decode(1, 0, 1), 1),
        (Test::prefill(128, 0), 128),
    ] {
        let samples = run(&mut session, test, 8, 3, true, &mut |_| ()).unwrap();
        assert_eq!((samples.times.len(), session.position()), (3, end), "{test:?}");
    }
    for test in [Test::prefill(9, 120), Test::decode(1, 0, 4)] {
        assert!(run(&mut session, test, 8, 1, false, &mut |_| ()).is_err(), "{test:?}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let model = Model::new();
    let refused = |args: &[&str], code, parts: &[&str]| assert_refused(&model.run(args), code, parts);
    refused(&["-p", "0", "-n", "0"], 2, &["nothing to measure"]);
    refused(&["-p", "4000", "-d", "97"], 2, &["4097", "4096"]);
    refused(&["-p", "18446744073709551615", "-d", "1"], 2, &["context of 4096"]);
    refused(&["--sequences", "0"], 2, &["--sequences"]);
    refused(&["--sequences", "1,1025"], 2, &["1025", "--sequences", "1..=1024"]);
    let mut threads = Command::new(env!("CARGO_BIN_EXE_lanemap"));
    assert_refused(
        &threads.args(["bench", "-t", "1025"]).output().unwrap(),
        2,
        &["1025", "--threads", "1024"],
    );
    refused(&["-r", "10001"], 2, &["10001", "--repetitions", "10000"]);
    refused(&["--pairs", "3"], 2, &["--pairs", "--against", "--ab"]);
    refused(
        &["--against", "no/such/llama-bench", "-p", "4", "-n", "0"],
        1,
        &["cannot start no/such/llama-bench"],
    );
    refused(&["--against", "x", "--sequences", "2"], 2, &["--sequences", "--against"]);
    refused(&["--against", "x", "--exact"], 2, &["--exact", "--against"]);
    refused(&["--against", "x", "--ab", "a", "b"], 2, &["--ab"]);
    refused(
        &["--ab", ".", "no/such/lanemap", "-p", "4", "-n", "0", "--pairs", "1"],
        1,
        &["--ab: B", "no/such/lanemap"],
    );
    // The program's own words.
    let args = ["--ab", ".", "LANEMAP_CPU=best", "-p", "4", "-n", "0", "--pairs", "1"];
    refused(&args, 1, &["--ab: B", "LANEMAP_CPU=best: this processor has"]);
}

#[test]
fn two_settings_run_in_turns() {
    let model = Model::new();
    let args = ["--ab", ".", "LANEMAP_CPU=baseline", "-p", "6", "-n", "2", "-d", "3", "--sequences", "2"];
    let rows = model.rows(&[&args[..], &["--pairs", "2", "-r", "3"]].concat());
    assert_eq!(rows.len(), 2);
    for (row, (prompt, generated, sequences)) in rows.iter().zip([(6, 0, 1), (0, 2, 2)]) {
        let found =
            ["n_prompt", "n_gen", "n_depth", "n_sequences", "pairs", "repetitions"].map(|name| &row[name]);
        let expected = [prompt, generated, 3, sequences, 2, 3].map(|number| json!(number));
        assert!(found.into_iter().eq(&expected), "{row}");
        assert_eq!((&row["a"], &row["b"]), (&json!("."), &json!("LANEMAP_CPU=baseline")));
        assert_eq!(
            (&row["verdict"], &row["control_verdict"]),
            (&json!("too-few-pairs"), &json!("too-few-pairs"))
        );
        for name in ["a_median_ts", "b_median_ts", "ratio_median", "control_median"] {
            assert!(row[name].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

/// A program that says of itself what llama-bench says, and keeps its arguments.
#[cfg(unix)]
fn peer(folder: &Folder, name: &str, body: &str) -> String {
    let path = folder.path(name).to_str().unwrap().to_owned();
    // Written by another process: a file that this one has open cannot be run by its other threads.
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$*\" >>\"$0.log\"\n{body}\n");
    let written = support::command::feed(
        Command::new("sh").args(["-c", "cat >\"$1\"; chmod +x \"$1\"", "sh", &path]),
        script.as_bytes(),
    );
    assert!(written.status.success());
    path
}

#[cfg(unix)]
#[test]
fn a_peer_runs_in_turns() {
    let model = Model::new();
    let result = |prompt, generated, rate| {
        json!({"build_commit": "abc123", "n_prompt": prompt, "n_gen": generated, "n_depth": 2, "avg_ts": rate}).to_string()
    };
    let body = format!("echo '{}'; echo '{}'", result(0, 3, 1e-3), result(8, 0, 1e9));
    let peer = peer(&model.folder, "peer", &body);
    let args = ["--against", &peer, "-p", "8", "-n", "3", "-d", "2", "-b", "64"];
    let rows = model.rows(&[&args[..], &["--pairs", "9", "-r", "2"]].concat());
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (&rows[0]["n_prompt"], &rows[0]["verdict"], &rows[0]["pairs"]),
        (&json!(8), &json!("slower"), &json!(9))
    );
    assert_eq!(
        (&rows[1]["n_gen"], &rows[1]["verdict"], &rows[1]["n_depth"]),
        (&json!(3), &json!("faster"), &json!(2))
    );
    assert_eq!(rows[0]["a"], json!(format!("{peer} abc123")));
    assert_eq!((&rows[0]["a_median_ts"], &rows[0]["control_median"]), (&json!(1e9), &Value::Null));
    let ratio = rows[0]["b_median_ts"].as_f64().unwrap() / 1e9;
    assert!((rows[0]["ratio_median"].as_f64().unwrap() / ratio - 1.0).abs() < 1e-9, "{}", rows[0]);

    let log = std::fs::read_to_string(format!("{peer}.log")).unwrap();
    let expected = format!("-m {} -o jsonl -fa 1 -p 8 -n 3 -d 2 -r 2 -b 64 -ub 64 -t 1 -ngl 0\n", model.path);
    assert_eq!(log, expected.repeat(9));
    let table = model.run(&[&args[..], &["--pairs", "1", "--no-warmup"]].concat());
    assert!(text(&table.stdout).contains("too few pairs to say"), "{}", text(&table.stdout));
    assert!(std::fs::read_to_string(format!("{peer}.log")).unwrap().ends_with("-t 1 --no-warmup -ngl 0\n"));
}

#[cfg(unix)]
#[test]
fn a_peer_that_fails_is_told() {
    let model = Model::new();
    for (name, body, parts) in [
        ("fails", "echo no model >&2; exit 3", &["fails", "exit status: 3", "no model"][..]),
        ("silent", "true", &["silent", "no result of pp8", "nothing on stderr"]),
        ("table", "echo '| model |'", &["table", "no result", "JSON"]),
        ("zero", r#"echo '{"n_prompt":8,"n_gen":0,"avg_ts":0}'"#, &["zero", "without rates"]),
        ("other", r#"echo '{"n_prompt":9,"n_gen":0,"avg_ts":1}'"#, &["other", "no result of pp8"]),
    ] {
        let peer = peer(&model.folder, name, body);
        assert_refused(&model.run(&["--against", &peer, "-p", "8", "-n", "0"]), 1, parts);
    }
}
