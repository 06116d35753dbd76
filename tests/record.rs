//! The form of what `--record` appends.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use chrono::{NaiveDateTime, Utc};
use support::command::{assert_refused, text};
use support::gguf::Folder;
use support::speller::speller;

/// Runs a command in a folder.
fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
    command.args(args).current_dir(folder).env_remove("RUST_LOG").stdin(Stdio::null());
    command.output().unwrap()
}

/// One section, by its lines: title, command, what is known, the result.
#[track_caller]
fn check(section: &str, command: &str, line: &str, result: &[&str]) {
    let lines: Vec<_> = section.lines().collect();
    let date = lines[0].strip_prefix(&format!("`lanemap {command}`, ")).unwrap();
    let date = NaiveDateTime::parse_from_str(date, "%Y-%m-%d %H:%M:%S UTC").unwrap().and_utc();
    let age = Utc::now() - date;
    assert!(age.num_seconds() >= -1 && age.num_minutes() < 10, "{date}");
    assert_eq!(lines[1..4], ["", &format!("    lanemap {line}"), ""]);
    let known: Vec<_> =
        lines[4..10].iter().map(|line| line.strip_prefix("- ").unwrap().split_once(": ").unwrap()).collect();
    let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["commit", "lanemap", "model", "device", "processor", "driver"]);
    assert!(known.iter().all(|(_, value)| !value.trim().is_empty()), "{section}");
    assert!(
        known[1].1.starts_with(concat!(env!("CARGO_PKG_VERSION"), ", ")) && known[1].1.ends_with(" profile")
    );
    assert_eq!(known[2].1, "tiny.gguf");
    assert!(known[3].1.starts_with("CPU, ") && known[3].1.contains("1 threads"), "{}", known[3].1);
    assert_eq!((known[5].1, lines[10]), ("none in use", ""));
    for (line, start) in lines[11..].iter().zip(result) {
        assert!(line.starts_with(start), "{line}, not {start}");
    }
    let rest = lines[11..].iter().filter(|line| !line.is_empty()).count();
    assert_eq!(rest, result.iter().filter(|line| !line.is_empty()).count(), "{section}");
}

#[test]
fn results_are_appended_with_where_they_come_from() {
    let folder = Folder::new();
    let model = speller(false).write(&folder);
    let model = model.to_str().unwrap();
    let letters = folder.write("some letters.txt", b"cdefghijklmnopqrstuvwxyz");
    let letters = letters.to_str().unwrap();
    let here = folder.path("");
    let machine = ["-m", model, "-t", "1", "--device", "cpu"];
    let bench = [&["bench", "-p", "3", "-n", "2", "-r", "1", "--record=out.md"], &machine[..]].concat();
    let first = run(&here, &bench);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let saved = run(
        &here,
        &[&["perplexity", letters, "-c", "8", "--json", "--record=out.md"], &machine[..]].concat(),
    );
    assert!(saved.status.success(), "{}", text(&saved.stderr));
    // The flags of a program as its environment has them, too.
    let ab =
        ["bench", "--ab", ".", "X=1", "-p", "3", "-n", "0", "--pairs", "1", "-o", "csv", "--record=out.md"];
    let ab = run(&here, &[&ab[..], &machine].concat());
    assert!(ab.status.success(), "{}", text(&ab.stderr));

    let page = fs::read_to_string(folder.path("out.md")).unwrap();
    let sections: Vec<_> = page.split("\n## ").collect();
    assert_eq!((sections.len(), sections[0]), (4, "# Results\n"), "{page}");
    let machine = "-m tiny.gguf -t 1 --device cpu";
    check(
        sections[1],
        "bench",
        &format!("bench -p 3 -n 2 -r 1 --record=out.md {machine}"),
        &["| model ", "| ----", "| llama ", "| llama "],
    );
    // What is printed is what is recorded.
    assert!(
        sections[1].ends_with(&text(&first.stdout)) || sections[1].contains(text(&first.stdout).trim_end())
    );
    check(
        sections[2],
        "perplexity",
        &format!("perplexity 'some letters.txt' -c 8 --json --record=out.md {machine}"),
        &["    perplexity "],
    );
    check(
        sections[3],
        "bench --ab",
        &format!("bench --ab . X=1 -p 3 -n 0 --pairs 1 -o csv --record=out.md {machine}"),
        &["- A: .", "- B: X=1", "", "| test ", "| -", "|  pp3 "],
    );
    assert!(!page.contains(folder.path("").to_str().unwrap()), "a path of this machine: {page}");
}

#[test]
fn the_results_of_a_checkout_are_found_from_within_it() {
    let folder = Folder::new();
    let model = speller(false).write(&folder);
    let args = [
        "bench",
        "-m",
        model.to_str().unwrap(),
        "-p",
        "3",
        "-n",
        "0",
        "-r",
        "1",
        "--device",
        "cpu",
        "-t",
        "1",
        "--record",
    ];
    let inner = folder.path("a/b");
    fs::create_dir_all(&inner).unwrap();
    assert_refused(&run(&inner, &args), 2, &["--record", "docs/results.md", "--record=FILE"]);
    fs::create_dir_all(folder.path("docs")).unwrap();
    fs::create_dir_all(folder.path(".git")).unwrap();
    let results = folder.write("docs/results.md", b"# Results\n\nBy hand.\n");
    assert!(run(&inner, &args).status.success());
    let page = fs::read_to_string(&results).unwrap();
    assert!(page.starts_with("# Results\n\nBy hand.\n\n## `lanemap bench`, "), "{page}");
    // Nothing is measured that could not be recorded.
    let refused = [&args[..args.len() - 1], &["--record=no/such/folder.md"]].concat();
    assert_refused(&run(&inner, &refused), 1, &["--record", "cannot write no/such/folder.md"]);
}

/// A program beside a bundle's files says what the bundle was built from.
#[test]
fn a_bundle_knows_its_commit() {
    let folder = Folder::new();
    let model = speller(false).write(&folder);
    let program = folder.path("lanemap");
    // Not by this process: what it has open for writing while another test starts a program cannot be run.
    let copy = Command::new("cp").arg(env!("CARGO_BIN_EXE_lanemap")).arg(&program).status().unwrap();
    assert!(copy.success());
    folder.write("run-tests", b"");
    folder.write("commit", b"abcdef012345\n");
    let bench =
        ["bench", "-p", "3", "-n", "0", "-r", "1", "-t", "1", "--device", "cpu", "--record=out.md", "-m"];
    let mut command = Command::new(program);
    command.args(bench).arg(model).current_dir(folder.path("")).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record = fs::read_to_string(folder.path("out.md")).unwrap();
    assert!(record.contains("\n- commit: abcdef012345\n"), "{record}");
}
