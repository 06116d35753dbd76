//! `lanemap generate` on a tiny model whose text is known (`support/speller.rs`): what must hold for any
//! model, without one from the network.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use support::command::{self, assert_refused, feed, ids, text};
use support::gguf::Folder;
use support::speller::{END, START, speller};

/// The model in a file.
struct Model {
    path: String,
    folder: Folder,
}

impl Model {
    fn new() -> Self {
        Self::with_bos(true)
    }

    fn with_bos(bos: bool) -> Self {
        let folder = Folder::new();
        let path = speller(bos).write(&folder).to_str().unwrap().to_owned();
        Self { path, folder }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command::generate(args);
        // Nothing but the file may be read.
        let nowhere = self.folder.path("no-cache");
        command.args(["-m", &self.path, "--threads", "1"]).env("LANEMAP_CACHE", nowhere);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The object that `--json` prints.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        command::json(&self.run(&[args, &["--json"]].concat()))
    }

    #[track_caller]
    fn prompt_ids(&self, args: &[&str]) -> Vec<u32> {
        ids(&self.json(&[args, &["-n", "0"]].concat())["prompt_ids"])
    }
}

#[test]
fn text_goes_to_stdout_and_the_rest_to_stderr() {
    let model = Model::new();
    for exact in [&[][..], &["--exact"]] {
        let output = model.run(&[&["a", "--greedy", "-n", "29"], exact].concat());
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        assert_eq!(text(&output.stdout), "bcdefghijklmnopqrstuvwxyz abc");
        let starts: Vec<&str> = stderr.lines().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(starts, ["load", "prefill", "decode", "stopped"], "{stderr}");
        assert!(stderr.contains("stopped: as many tokens as asked for"), "{stderr}");
    }
}

#[test]
fn the_json_object_has_every_field() {
    let model = Model::new();
    let mut object = model.json(&["abc", "--greedy", "-n", "3", "-c", "64", "--seed", "9"]);
    let timings = object.as_object_mut().unwrap().remove("timings").unwrap();
    let expected = json!({
        "model": model.path,
        "architecture": "llama",
        "device": "cpu",
        "exact": false,
        "context": 64,
        "seed": 9,
        "prompt_ids": [256, b'c'],
        "generated_ids": b"def",
        "text": "def",
        "stop_reason": "length",
    });
    assert_eq!(object, expected);
    assert!(timings["load_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(timings["prefill"]["tokens"], 2);
    assert_eq!(timings["decode"]["tokens"], 2, "the last token is not evaluated");

    let object = model.json(&["abc", "--greedy", "-n", "2", "--top-logits", "1"]);
    let best: Vec<&Value> = object["top_logits"].as_array().unwrap().iter().map(|step| &step[0][0]).collect();
    assert_eq!(best, [&json!(b'd'), &json!(b'e')]);
}

#[test]
fn the_number_of_tokens_is_a_limit() {
    let model = Model::new();
    for (n, expected) in [("0", ""), ("1", "b"), ("5", "bcdef")] {
        let object = model.json(&["a", "--greedy", "-n", n]);
        assert_eq!((&object["text"], &object["stop_reason"]), (&json!(expected), &json!("length")), "-n {n}");
    }
    for n in ["0", "1", "5"] {
        let object = model.json(&["!", "--greedy", "-n", n, "--ignore-eos"]);
        assert_eq!(ids(&object["generated_ids"]).len().to_string(), n);
    }
    let ended = model.json(&["!", "--greedy", "-n", "5"]);
    assert_eq!(ended["stop_reason"], "end-of-generation");
    assert_eq!((ids(&ended["generated_ids"]), &ended["text"]), (vec![END], &json!("")));
}

/// A stop string is found across tokens, and what only begins like one is printed.
#[test]
fn a_stop_string_is_not_printed() {
    let model = Model::new();
    let cases: [(&[&str], &str, &str); 5] = [
        (&["mno"], "bcdefghijkl", "stop-string"),
        (&["mnx", "z a"], "bcdefghijklmnopqrstuvwxy", "stop-string"),
        (&["xyz", "cd"], "b", "stop-string"),
        (&["b"], "", "stop-string"),
        (&["z b", "abcx"], "bcdefghijklmnopqrstuvwxyz abc", "length"),
    ];
    for (stops, expected, reason) in cases {
        let mut args = vec!["a", "--greedy", "-n", "29"];
        stops.iter().for_each(|stop| args.extend(["--stop", stop]));
        let object = model.json(&args);
        assert_eq!(
            (&object["text"], &object["stop_reason"]),
            (&json!(expected), &json!(reason)),
            "{stops:?}"
        );
        assert_eq!(text(&model.run(&args).stdout), expected, "{stops:?}");
    }
}

#[test]
fn a_seed_replays_and_the_one_in_use_is_told() {
    let model = Model::new();
    let args = ["a", "--samplers", "temperature", "--temp", "8", "--ignore-eos", "-n", "40", "--json"];
    let first = model.run(&args);
    let object = command::json(&first);
    let seed = object["seed"].to_string();
    let told = format!("seed: {seed}");
    assert!(text(&first.stderr).lines().any(|line| line == told), "{}", text(&first.stderr));
    let with_seed = |seed: &str, more: &[&str]| {
        let args = [&args[..], &["--seed", seed], more].concat();
        ids(&command::json(&model.run(&args))["generated_ids"])
    };
    let drawn = ids(&object["generated_ids"]);
    assert!(drawn.iter().any(|id| !(97..=122).contains(id)), "{drawn:?} has nothing drawn at random");
    for more in [&[][..], &["-b", "1"], &["-c", "64"]] {
        assert_eq!(with_seed(&seed, more), drawn, "{more:?}");
    }
    let other = if seed == "1" { "2" } else { "1" };
    assert_ne!(with_seed(other, &[]), drawn);
}

#[test]
fn the_context_is_a_limit_that_is_told() {
    let model = Model::new();
    let run =
        |tokens: usize, n: &str| model.run(&[&"x".repeat(tokens), "--greedy", "-c", "64", "-n", n, "--json"]);
    for (tokens, n, generated, reason) in [
        (63, "0", 0, "length"),
        (63, "2", 2, "length"),
        (63, "9", 2, "context-full"),
        (64, "0", 0, "length"),
        (64, "1", 1, "length"),
        (64, "9", 1, "context-full"),
    ] {
        let output = run(tokens, n);
        let object = command::json(&output);
        assert_eq!(ids(&object["prompt_ids"]).len(), tokens);
        assert_eq!(object["context"], 64);
        assert_eq!(ids(&object["generated_ids"]).len(), generated, "{tokens} tokens, -n {n}");
        assert_eq!(object["stop_reason"], reason, "{tokens} tokens, -n {n}");
        let full = text(&output.stderr).contains("stopped: the context is full");
        assert_eq!(full, reason == "context-full", "{}", text(&output.stderr));
    }
    for n in ["0", "1", "9"] {
        assert_refused(&run(65, n), 2, &["65", "64", "--ctx"]);
    }
    assert_eq!(model.json(&["x", "-c", "0", "-n", "0"])["context"], 4096, "the model's own");
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let model = Model::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    for mode in [&[][..], &["--json"]] {
        let mut command = model.command(&[&["a", "--greedy", "-n", "5"], mode].concat());
        let output = command.stdout(writer.try_clone().unwrap()).stderr(Stdio::piped()).output().unwrap();
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{:?}: {stderr}", output.status);
        assert!(!stderr.contains("error") && !stderr.contains("panicked"), "{stderr}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_one_line() {
    let model = Model::new();
    for mode in [&[][..], &["--json"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = model.command(&[&["a", "--greedy", "-n", "5"], mode].concat());
        let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{stderr}");
        assert!(errors[0].starts_with("error: cannot write to standard output"), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let model = Model::new();
    let output = model.run(&["a", "--greedy", "-n", "1", "--device", "cuda:99"]);
    assert_refused(&output, 1, &["--device cuda:99", "--device cpu"]);
    assert_eq!(model.json(&["a", "--greedy", "-n", "1", "--device", "cpu"])["text"], "b");
}

/// From an argument, an option, a file and stdin; white space is a prompt and not an empty one.
#[test]
fn an_empty_prompt_starts_from_the_beginning_of_a_text_or_is_refused() {
    let (with, without) = (Model::new(), Model::with_bos(false));
    let empty = with.folder.write("empty.txt", b"");
    let empty = empty.to_str().unwrap();
    let common = ["--greedy", "-n", "2"];
    for source in [&[""][..], &["-p", ""], &["-f", empty], &[]] {
        let args = [&common[..], source].concat();
        let object = with.json(&args);
        assert_eq!((ids(&object["prompt_ids"]), &object["text"]), (vec![START], &json!("ab")), "{source:?}");
        assert_refused(&without.run(&args), 2, &["the prompt is empty"]);
    }
    for model in [&with, &without] {
        assert_eq!(model.prompt_ids(&["-p", "   "]), [32, 32, 32]);
        assert_eq!(model.json(&["a", "--greedy", "-n", "2"])["text"], "bc");
    }
}

#[test]
fn the_prompt_is_the_same_from_everywhere() {
    let model = Model::new();
    let prompts =
        ["abc", "one line", "two\nlines\n", "a\r\nb\r\n", "a\rb", "   ", "nul\0byte", "-n 5", "é😊", "!"];
    for prompt in prompts {
        let path = model.folder.write("prompt.txt", prompt.as_bytes());
        let path = path.to_str().unwrap();
        let from_file = model.prompt_ids(&["-f", path]);
        if !prompt.contains("ab") {
            let bytes: Vec<u32> = prompt.bytes().map(u32::from).collect();
            assert_eq!(from_file, bytes, "{prompt:?}");
        }
        let stdin = ["-n", "0", "--json"];
        for args in [&stdin[..], &["-f", "-", "-n", "0", "--json"]] {
            let output = feed(&mut model.command(args), prompt.as_bytes());
            assert_eq!(ids(&command::json(&output)["prompt_ids"]), from_file, "{prompt:?}");
        }
        // No argument of a process can hold a NUL byte.
        if !prompt.contains('\0') {
            assert_eq!(model.prompt_ids(&["-p", prompt]), from_file, "{prompt:?}");
        }
        let marked = model.folder.write("marked.txt", &[b"\xef\xbb\xbf", prompt.as_bytes()].concat());
        let marked = model.prompt_ids(&["-f", marked.to_str().unwrap()]);
        assert_eq!(marked, from_file, "{prompt:?} after a byte order mark");
    }
    // A control token is one before a line end of either kind.
    for end in ["\n", "\r\n"] {
        let special = model.prompt_ids(&["--special", "-p", &format!("<|im_end|>{end}")]);
        assert_eq!(special[0], END);
        assert_eq!(special.len(), 1 + end.len());
    }
    assert_ne!(model.prompt_ids(&["<|im_end|>"]), [END], "what a user typed is text");
    assert_refused(&feed(&mut model.command(&[]), b"abc\xe2\x82"), 2, &["stdin", "byte 3"]);
}
