//! `lanemap profile` as a user runs it, on the emulator.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde_json::Value;
use support::command::{assert_refused, json, text};
use support::gguf::Folder;

fn lanemap(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
    command.arg("profile").args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command.output().unwrap()
}

#[test]
fn the_command_reports_counters_of_the_emulator() {
    let folder = Folder::new();
    let path = |name: &str| folder.path(name).into_os_string().into_string().unwrap();
    let (svg, trace) = (path("wall.svg"), path("trace.json"));
    let run = ["--device", "emulator", "--synth", "tiny:q8_0", "-n", "2", "-d", "3", "--greedy"];
    let files = ["--svg", &svg, "--trace", &trace];
    let output = lanemap(&[&run[..], &files, &["--json"]].concat());
    let report: Value = json(&output);
    let wrote = text(&output.stderr);
    assert!(wrote.contains("wall.svg") && wrote.contains("trace.json"), "{wrote}");
    assert_eq!(report["test"], "tg2 @ d3");
    assert!(report.get("wall").is_none(), "the emulator has no times");
    let kernels = report["kernels"].as_array().unwrap();
    let total = |key: &str| kernels.iter().map(|kernel| kernel[key].as_f64().unwrap()).sum::<f64>();
    let calls = total("calls");
    assert!(calls > 10.0 && total("bytes") > 0.0, "{report}");
    assert!(kernels.iter().any(|kernel| kernel["kernel"] == "argmax"), "the device chooses");
    for kernel in kernels {
        let ratio = kernel["traffic"]["ratio"].as_f64().unwrap();
        assert!(ratio >= 1.0, "{kernel}");
        assert!(kernel["seconds"].is_null() && kernel["floor_seconds"].is_null(), "{kernel}");
    }

    let trace: Value = serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let launches = events.iter().filter(|event| event["ph"] == "X");
    assert_eq!(launches.count() as f64, 2.0 * calls, "a launch, an event");
    let svg = fs::read_to_string(&svg).unwrap();
    for kernel in kernels {
        assert!(svg.contains(kernel["kernel"].as_str().unwrap()), "{kernel} is in the picture");
    }
    // Behind the style, braces would be names that nobody has filled in.
    let (_, drawn) = svg.split_once("</style>").unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>") && !drawn.contains('{'), "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");

    let record = path("record.md");
    let table = lanemap(&[&run[..], &[&format!("--record={record}")]].concat());
    assert!(table.status.success());
    let recorded = fs::read_to_string(&record).unwrap();
    assert!(recorded.starts_with("# Results\n\n## `lanemap profile`, "), "{recorded}");
    for line in ["- model: synth:tiny:q8_0\n", "- device: the emulator\n", "- driver: none in use\n"] {
        assert!(recorded.contains(line), "{recorded}");
    }
    assert!(recorded.ends_with(text(&table.stdout).as_str()), "{recorded}");
    let table = text(&table.stdout);
    assert!(table.starts_with("tg2 @ d3 of synth:tiny:q8_0 on "), "{table}");
    let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| ")).collect();
    assert_eq!(rows.len(), kernels.len() + 2, "{table}");
    assert!(rows.iter().all(|row| row.chars().count() == rows[0].chars().count()), "{table}");
}

#[test]
fn what_cannot_be_profiled_is_refused_in_words() {
    let run = ["--device", "emulator", "--synth", "tiny:q8_0"];
    let refused = |args: &[&str], parts: &[&str]| {
        assert_refused(&lanemap(&[&run[..], args].concat()), 2, parts);
    };
    refused(&["-p", "2000", "-d", "100"], &["2100 positions", "context of 2048"]);
    refused(&["-p", "8", "-n", "2"], &["-n"]);
    refused(&["-p", "8", "--greedy"], &["--n-gen"]);
    assert_refused(&lanemap(&["--device", "cpu"]), 2, &["emulator", "cuda"]);
    assert_refused(&lanemap(&["--device", "cuda:999"]), 1, &["cuda:999", "--device emulator"]);
    let unwritable = lanemap(&[&run[..], &["-p", "2", "--svg", "no/such/folder/x.svg"]].concat());
    assert_refused(&unwritable, 1, &["--svg", "no/such/folder"]);
    // Before the work, of which this would be too much to wait for.
    let work = ["--device", "emulator", "--synth", "tiny:q8_0", "-n", "1000", "-d", "1000"];
    let started = Instant::now();
    let unwritable = lanemap(&[&work[..], &["--trace", "no/such/folder/x.json"]].concat());
    assert_refused(&unwritable, 1, &["--trace", "no/such/folder"]);
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    let folder = Folder::new();
    let one = folder.path("one").into_os_string().into_string().unwrap();
    refused(&["-p", "2", "--svg", &one, "--trace", &one], &["--svg and --trace are both", "one"]);
    let record = format!("--record={one}");
    refused(&["-p", "2", "--svg", &one, &record], &["--svg and --record are both", "one"]);
    assert!(!folder.path("one").exists(), "nothing was written");
}
