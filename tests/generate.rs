//! `lanemap generate` as a user meets it: exit codes, messages, and text from a real model.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::command::{assert_refused, feed, generate, ids, json, text};

const SMOLLM2: &str = "smollm2-135m";
const GEMMA3: &str = "gemma3-270m";

fn run(args: &[&str]) -> Output {
    generate(args).output().unwrap()
}

fn run_with_stdin(args: &[&str], input: &[u8]) -> Output {
    feed(&mut generate(args), input)
}

#[test]
fn wrong_flags_are_refused_by_name() {
    let cases: [(&[&str], &[&str]); 22] = [
        (&["x", "--batch", "0"], &["--batch", "'0'"]),
        (&["x", "--device", "tpu"], &["--device", "tpu", "cuda:N"]),
        (&["x", "--stop", ""], &["--stop"]),
        (&["x", "--top-k", "many"], &["--top-k", "many"]),
        (&["x", "--temp", "nan"], &["--temp", "NaN"]),
        (&["x", "--top-p", "95"], &["--top-p", "95"]),
        (&["x", "--min-p", "-0.5"], &["--min-p", "-0.5"]),
        (&["x", "--repeat-penalty", "0"], &["--repeat-penalty"]),
        (&["x", "--repeat-last-n", "-2"], &["--repeat-last-n", "-2"]),
        (&["x", "--samplers", "top_k;mirostat"], &["--samplers", "mirostat", "typ_p"]),
        (&["x", "--logit-bias", "5"], &["--logit-bias", "TOKEN(+/-)BIAS"]),
        (&["x", "--mirostat", "2"], &["--mirostat"]),
        (&["x", "--chat", "--no-chat"], &["--chat", "--no-chat"]),
        (&["x", "--no-chat", "--system", "s"], &["--no-chat", "--system"]),
        (&["x", "--greedy", "--temp", "1"], &["--greedy", "--temp"]),
        (&["x", "-p", "y"], &["--prompt"]),
        (&["x", "-f", "y"], &["--file"]),
        (&["x", "--top-logits", "3"], &["--json"]),
        (&["x", "-n", "-2"], &["--n-predict", "-2"]),
        (&["x", "--seed", "4294967296"], &["--seed", "4294967296"]),
        (&["x", "--threads", "99999999"], &["--threads", "99999999"]),
        (&["two", "words"], &["words"]),
    ];
    for (args, parts) in cases {
        assert_refused(&run(&[args, &["-m", "no-such.gguf"]].concat()), 2, parts);
    }
}

#[test]
fn a_device_that_is_not_there_is_a_failure() {
    assert_refused(&run(&["x", "--device", "cuda"]), 1, &["--device cuda:0", "--device cpu"]);
}

#[test]
fn a_prompt_that_is_not_text_is_refused_with_its_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompt.txt");
    fs::write(&path, b"ab\xffcd").unwrap();
    let path = path.to_str().unwrap();
    assert_refused(&run(&["-f", path, "-m", "no-such.gguf"]), 2, &[path, "byte 2"]);
    assert_refused(&run_with_stdin(&["-m", "no-such.gguf"], b"abc\xe2\x82"), 2, &["stdin", "byte 3"]);
    let missing = folder.path().join("missing.txt");
    assert_refused(&run(&["-f", missing.to_str().unwrap()]), 1, &["missing.txt"]);
}

#[test]
fn a_file_that_is_no_model_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let cases = [
        folder.path().join("missing.gguf"),
        folder.path().to_path_buf(),
        file("empty.gguf", b""),
        file("short.gguf", b"GGUF\x03\0\0\0\x01"),
        file("other.gguf", b"PK\x03\x04 this is a zip file, is it not?"),
    ];
    for path in cases {
        let path = path.to_str().unwrap();
        assert_refused(&run(&["x", "-m", path]), 1, &[path]);
    }
}

/// The demo model's file and a way to run it.
struct Real(PathBuf);

impl Real {
    fn find(id: &str) -> Option<Self> {
        support::models::real_model(id).map(Self)
    }

    fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        [&["-m", self.0.to_str().unwrap()], args].concat()
    }

    fn run(&self, args: &[&str]) -> Output {
        run(&self.args(args))
    }

    /// The object that `--json` prints.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        json(&self.run(&[args, &["--json"]].concat()))
    }
}

#[test]
fn text_goes_to_stdout_and_the_rest_to_stderr() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    let args = ["The capital of France is", "--no-chat", "--greedy", "-n", "8"];
    let output = model.run(&args);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(text(&output.stdout).contains("Paris"), "{}", text(&output.stdout));
    for part in ["load:", "prefill:", "decode:", "tok/s", "stopped: as many tokens as asked for"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    let object = model.json(&args);
    assert_eq!(object["text"], text(&output.stdout));
    assert_eq!(object["stop_reason"], "length");
    assert_eq!(object["architecture"], "llama");
    assert_eq!(ids(&object["prompt_ids"]), [504, 3575, 282, 4649, 314]);
    assert_eq!(ids(&object["generated_ids"]).len(), 8);
    assert_eq!(object["timings"]["prefill"]["tokens"], 5);
    assert_eq!(object["timings"]["decode"]["tokens"], 7);
    assert!(object["timings"]["decode"]["tokens_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_top_logits_of_every_step_are_there_when_asked_for() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    let args = ["Once upon a time", "--no-chat", "--greedy", "--top-logits", "5", "-n"];
    let object = model.json(&[&args[..], &["3"]].concat());
    let steps = object["top_logits"].as_array().unwrap();
    assert_eq!(steps.len(), 3);
    for (step, chosen) in steps.iter().zip(ids(&object["generated_ids"])) {
        let pairs = step.as_array().unwrap();
        assert_eq!(pairs.len(), 5);
        assert_eq!(pairs[0][0], chosen);
        assert!(pairs.is_sorted_by_key(|pair| -pair[1].as_f64().unwrap()));
    }
    let prompt_only = model.json(&[&args[..], &["0"]].concat());
    assert_eq!(prompt_only["top_logits"][0], steps[0]);
    assert_eq!(prompt_only["generated_ids"], serde_json::json!([]));
    assert_eq!(prompt_only["text"], "");
}

#[test]
fn the_prompt_is_the_same_from_everywhere() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompt.txt");
    let path = path.to_str().unwrap();
    let options = ["--json", "-n", "0", "--no-chat"];
    let prompts = ["one line", "two\nlines\n", "a\r\nb\r\n", "a\rb", "   ", "nul\0byte", "-n 5", "é😊"];
    for prompt in prompts {
        fs::write(path, prompt).unwrap();
        let from_file = ids(&model.json(&["-n", "0", "--no-chat", "-f", path])["prompt_ids"]);
        let stdin = run_with_stdin(&model.args(&options), prompt.as_bytes());
        assert_eq!(ids(&json(&stdin)["prompt_ids"]), from_file, "{prompt:?}");
        // No argument of a process can hold a NUL byte.
        if !prompt.contains('\0') {
            let option = model.json(&["-n", "0", "--no-chat", "-p", prompt]);
            assert_eq!(ids(&option["prompt_ids"]), from_file, "{prompt:?}");
        }
        fs::write(path, [b"\xef\xbb\xbf", prompt.as_bytes()].concat()).unwrap();
        let with_mark = model.json(&["-n", "0", "--no-chat", "-f", path]);
        assert_eq!(ids(&with_mark["prompt_ids"]), from_file, "{prompt:?} after a byte order mark");
    }
    let lines = |prompt| ids(&model.json(&["-n", "0", "--no-chat", "-p", prompt])["prompt_ids"]);
    assert_ne!(lines("a\n"), lines("a"));
    assert_ne!(lines("a\r\nb"), lines("a\nb"));
}

#[test]
fn an_empty_prompt_starts_from_the_beginning_of_a_text() {
    for (id, bos) in [(SMOLLM2, 1), (GEMMA3, 2)] {
        let Some(model) = Real::find(id) else { return };
        let object = model.json(&["", "-n", "2", "--greedy"]);
        assert_eq!(ids(&object["prompt_ids"]), [bos]);
        assert_eq!(ids(&object["generated_ids"]).len(), 2);
    }
}

#[test]
fn the_template_frames_a_plain_prompt() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    let im_start = |args: &[&str]| {
        let object = model.json(&[args, &["-n", "0"]].concat());
        ids(&object["prompt_ids"]).into_iter().filter(|&id| id == 1).count()
    };
    assert_eq!(im_start(&["hello", "--no-chat"]), 0);
    let framed = im_start(&["hello"]);
    assert!(framed >= 2, "{framed}");
    assert_eq!(im_start(&["hello", "--chat"]), framed);
    // What a user typed is no control token, unless that is asked for; then the prompt is
    // framed by hand.
    assert_eq!(im_start(&["<|im_start|>hello"]), framed);
    assert_eq!(im_start(&["<|im_start|>hello", "--special"]), 1);
    assert_eq!(im_start(&["hello", "--special"]), framed);
    let with_system = model.json(&["hello", "--system", "Be brief.", "-n", "0"]);
    let plain = model.json(&["hello", "-n", "0"]);
    assert_ne!(with_system["prompt_ids"], plain["prompt_ids"]);
}

#[test]
fn generation_ends_at_the_end_token_and_goes_on_where_told_to() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    let ended = model.json(&["Write one sentence about the sea.", "--no-chat", "--greedy", "-n", "3"]);
    assert_eq!(ids(&ended["generated_ids"]), [2]);
    assert_eq!(ended["stop_reason"], "end-of-generation");
    assert_eq!(ended["text"], "");
    let args = ["Write one sentence about the sea.", "--no-chat", "--greedy", "-n", "3", "--ignore-eos"];
    let went_on = model.json(&args);
    assert_eq!(ids(&went_on["generated_ids"]).len(), 3);
    assert!(!ids(&went_on["generated_ids"]).contains(&2));
}

#[test]
fn a_stop_string_is_not_printed() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    let args = ["The capital of France is", "--no-chat", "--greedy", "-n", "8"];
    let whole = text(&model.run(&args).stdout);
    let at = whole.find("Paris").unwrap();
    let output = model.run(&[&args[..], &["--stop", "nowhere", "--stop", "Paris"]].concat());
    assert_eq!(text(&output.stdout), whole[..at]);
    assert!(text(&output.stderr).contains("stopped: stop string"));
}

#[test]
fn a_seed_replays_and_the_one_in_use_is_told() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    let args = ["Once upon a time", "--no-chat", "--temp", "1.5", "-n", "24"];
    let first = model.run(&[&args[..], &["--json"]].concat());
    let stderr = text(&first.stderr);
    let first = json(&first);
    let seed = first["seed"].to_string();
    assert!(stderr.lines().any(|line| line == format!("seed: {seed}")), "{stderr}");
    let with_seed = |seed: &str, more: &[&str]| model.json(&[&args[..], &["--seed", seed], more].concat());
    for batch in ["1", "3", "512"] {
        assert_eq!(with_seed(&seed, &["-b", batch])["generated_ids"], first["generated_ids"], "-b {batch}");
    }
    let other = if seed == "1" { "2" } else { "1" };
    assert_ne!(with_seed(other, &[])["generated_ids"], first["generated_ids"]);

    // SmolLM2 has 49152 tokens: keeping that many is keeping all.
    let all = with_seed("7", &["--top-k", "0"])["generated_ids"].clone();
    for top_k in ["-1", "49152", "49153"] {
        assert_eq!(with_seed("7", &["--top-k", top_k])["generated_ids"], all, "--top-k {top_k}");
    }
}

#[test]
fn the_context_is_a_limit_that_is_told() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    let prompt = "the sea and ".repeat(40);
    let args =
        |ctx: &'static str, n: &'static str| [prompt.as_str(), "--no-chat", "--greedy", "-c", ctx, "-n", n];
    let count = ids(&model.json(&[&prompt, "--no-chat", "-n", "0"])["prompt_ids"]).len();
    assert_eq!(count, 121, "the cases below are about a prompt of this length");

    for n in ["0", "1", "5"] {
        assert_refused(&model.run(&args("120", n)), 2, &["121", "120", "--ctx"]);
    }
    for (ctx, n, generated, reason) in [
        ("121", "0", 0, "length"),
        ("121", "1", 1, "length"),
        ("121", "5", 1, "context-full"),
        ("122", "5", 2, "context-full"),
        ("126", "5", 5, "length"),
    ] {
        let object = model.json(&[&args(ctx, n)[..], &["--ignore-eos"]].concat());
        assert_eq!(ids(&object["generated_ids"]).len(), generated, "-c {ctx} -n {n}");
        assert_eq!(object["stop_reason"], reason, "-c {ctx} -n {n}");
    }
    let output = model.run(&[&args("122", "5")[..], &["--ignore-eos"]].concat());
    assert!(text(&output.stderr).contains("stopped: the context is full"));
    for batch in ["120", "121", "122"] {
        let object = model.json(&[&args("0", "1")[..], &["-b", batch]].concat());
        assert_eq!(object["context"], 8192, "the model's own");
        assert_eq!(ids(&object["generated_ids"]).len(), 1);
    }
}

#[test]
fn a_context_beyond_all_memory_is_refused() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    for ctx in ["1000000000000", "18446744073709551615"] {
        let output = model.run(&["hello", "-n", "1", "-c", ctx]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.lines().last().unwrap().starts_with("error: "), "{stderr}");
        assert!(stderr.contains("--ctx") && !stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn a_bias_on_a_token_that_is_not_there_is_refused() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    assert_refused(&model.run(&["hello", "--greedy", "-l", "49152+1"]), 2, &["49152", "--logit-bias"]);
}

#[test]
fn a_template_that_is_not_there_is_refused() {
    let Some(model) = Real::find(GEMMA3) else { return };
    for flags in [&["--chat"][..], &["--system", "Be brief."]] {
        assert_refused(&model.run(&[&["hello"], flags].concat()), 2, &["no chat template", flags[0]]);
    }
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    let args = ["Once upon a time", "--no-chat", "--greedy", "--ignore-eos", "-n", "400"];
    let mut child =
        generate(&model.args(&args)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(text(&output.stderr), "");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_one_line() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    for mode in [&[][..], &["--json"]] {
        let args = [&["Once upon a time", "--no-chat", "--greedy", "-n", "2"], mode].concat();
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = generate(&model.args(&args)).stdout(full).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.lines().last().unwrap().starts_with("error: cannot write to standard output"),
            "{stderr}"
        );
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

/// Sends the interrupt signal, as Ctrl-C does.
#[cfg(unix)]
fn interrupt(child: &std::process::Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[cfg(unix)]
#[test]
fn the_first_interrupt_ends_cleanly() {
    let Some(model) = Real::find(SMOLLM2) else { return };
    let args = ["Once upon a time", "--no-chat", "--greedy", "--ignore-eos"];
    let mut child =
        generate(&model.args(&args)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 10]).unwrap();
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("stopped: interrupted") && stderr.contains("decode:"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn the_second_interrupt_quits() {
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    let Some(model) = Real::find(SMOLLM2) else { return };
    // The object is longer than a pipe holds. Nobody reads on after its first byte, so the
    // process waits, and only an interrupt can end it.
    let args = ["hello", "-n", "0", "--json", "--top-logits", "49152"];
    let mut child =
        generate(&model.args(&args)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
    let start = Instant::now();
    let status = loop {
        // Signals that are sent before the first one is taken are one signal: send more.
        interrupt(&child);
        sleep(Duration::from_millis(20));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("interrupts do not end it");
        }
    };
    assert_eq!(status.code(), Some(130));
}

#[test]
fn tokenize_prints_what_the_model_sees() {
    let Some(model) = support::models::real_model(GEMMA3) else { return };
    let tokenize = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
        command.args(["tokenize", "-m", model.to_str().unwrap()]).args(args).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(tokenize(&["The capital", "--ids"]), "[2,818,5279]\n");
    assert_eq!(tokenize(&["The capital", "--ids", "--no-bos"]), "[818,5279]\n");
    assert_eq!(tokenize(&["The capital"]), "      2 \"<bos>\"\n    818 \"The\"\n   5279 \" capital\"\n");
    assert_eq!(tokenize(&["<bos>", "--special", "--no-bos", "--ids"]), "[2]\n");
    assert_ne!(tokenize(&["<bos>", "--no-bos", "--ids"]), "[2]\n");
}
