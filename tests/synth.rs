//! Models of random weights: they load, they run, and `lanemap synth` writes them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lanemap::cpu::{Arithmetic, CpuBackend, CpuOptions};
use lanemap::gguf::Gguf;
use lanemap::model::Model;
use lanemap::session::Session;
use lanemap::synth::{DEFAULT_SEED, MIXES, SHAPES, Shape, Spec, Synth};
use support::command::{assert_refused, text};
use support::gguf::Folder;
use support::loaded::{decode, prefill};
use support::tiny::random_tokens;

fn session(spec: Spec, exact: bool) -> Session {
    let gguf = Synth::new(spec, DEFAULT_SEED).gguf(&mut |_| Ok(())).unwrap();
    let model = Arc::new(Model::load(Arc::new(gguf)).unwrap());
    let backend =
        CpuBackend::new(model, CpuOptions { threads: 1, arithmetic: Arithmetic::exact_if(exact) }).unwrap();
    Session::new(Box::new(backend), 64).unwrap()
}

/// Logits of a sensible size, none like another.
#[track_caller]
fn assert_alive(logits: &[f32], what: &str) {
    let size = (logits.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / logits.len() as f64).sqrt();
    // The output projection takes inputs of size 1 to outputs of about 0.7.
    assert!((0.5..1.0).contains(&size), "{what}: logits of size {size}");
    let mut sorted = logits.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    sorted.dedup();
    assert!(sorted.len() > logits.len() / 2, "{what}: {} different logits", sorted.len());
}

/// A prompt longer than Gemma's window, in pieces, and some tokens.
#[track_caller]
fn runs(spec: Spec, exact: bool) {
    let what = format!("{spec}, exact: {exact}");
    let mut session = session(spec, exact);
    let tokens = random_tokens(spec.shape.vocab_size, 41, 5);
    let (prompt, rest) = tokens.split_at(38);
    let mut all = vec![prefill(&mut session, prompt, 16)];
    all.extend(decode(&mut session, rest));
    all.iter().for_each(|logits| assert_alive(logits, &what));
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{what}: two tokens with the same logits");
}

fn tiny() -> impl Iterator<Item = &'static Shape> {
    SHAPES.iter().filter(|shape| shape.name.starts_with("tiny"))
}

#[test]
fn the_tiny_shapes_run_in_every_mix() {
    assert_eq!(tiny().count(), 3);
    for shape in tiny() {
        for mix in &MIXES {
            runs(Spec { shape, mix }, false);
        }
        runs(Spec { shape, mix: &MIXES[0] }, true);
    }
}

/// Forty-eight layers, as the deepest shape has them: what a layer does to the size of its input shows.
#[test]
fn activations_neither_overflow_nor_vanish_through_many_layers() {
    const fn deep(name: &str) -> Shape {
        let mut i = 0;
        while SHAPES[i].name.len() != name.len() {
            i += 1;
        }
        Shape { layers: 48, ..SHAPES[i] }
    }
    static DEEP: [Shape; 3] = [deep("tiny"), deep("tiny-qwen2"), deep("tiny-gemma3")];
    for shape in &DEEP {
        runs(Spec { shape, mix: &MIXES[0] }, false);
    }
}

fn lanemap(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanemap"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> Output {
    lanemap(args).output().unwrap()
}

fn made(model: &Synth) -> Vec<u8> {
    let mut bytes = Vec::new();
    model.write_to(&mut bytes, &mut |_| Ok(())).unwrap();
    bytes
}

#[test]
fn the_command_writes_the_file_and_says_what_it_is() {
    let folder = Folder::new();
    let path = folder.path("m.gguf");
    let name = path.to_str().unwrap();
    let written = output(&["synth", "tiny-gemma3:q4_k_m", name]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    assert_eq!(text(&written.stderr), "");
    let spec: Spec = "tiny-gemma3:q4_k_m".parse().unwrap();
    let model = Synth::new(spec, DEFAULT_SEED);
    let stdout = text(&written.stdout);
    for part in [name, "tiny-gemma3:q4_k_m", "gemma3: 7 layers", &format!("{} bytes", model.file_bytes())] {
        assert!(stdout.contains(part), "no {part:?} in {stdout}");
    }
    let expected = made(&model);
    assert!(fs::read(&path).unwrap() == expected, "the file is not what the library makes");
    Model::load(Arc::new(Gguf::open(&path).unwrap())).unwrap();

    assert_refused(&output(&["synth", "tiny:f16", name]), 2, &[name, "--force"]);
    assert!(fs::read(&path).unwrap() == expected);
    assert!(output(&["synth", "tiny:f16", name, "--force", "--seed", "9"]).status.success());
    let other = made(&Synth::new("tiny:f16".parse().unwrap(), 9));
    assert!(fs::read(&path).unwrap() == other, "the file was not replaced");
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);

    let nowhere = folder.path("no/m.gguf");
    assert_refused(&output(&["synth", "tiny:f16", nowhere.to_str().unwrap()]), 1, &["m.gguf"]);
    assert_refused(&output(&["synth", "small:f16", name]), 2, &["`small`", "tiny-gemma3", "qwen2-7b"]);
    assert_refused(&output(&["synth", "tiny:f16"]), 2, &["<OUT>"]);
}

#[test]
fn the_list_has_every_shape_and_mix() {
    let listed = text(&output(&["synth", "--list"]).stdout);
    for name in SHAPES.map(|shape| shape.name).iter().chain(&MIXES.map(|mix| mix.name)) {
        assert_eq!(
            listed.lines().filter(|line| line.split_whitespace().next() == Some(name)).count(),
            1,
            "{name}"
        );
    }
}

/// A large model on its way to `m.gguf` in a folder, as soon as something is there.
fn under_way(folder: &Folder) -> Child {
    let path = folder.path("m.gguf");
    let mut child = lanemap(&["synth", "qwen2-7b:q4_k_m", path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while fs::read_dir(path.parent().unwrap()).unwrap().count() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        assert!(started.elapsed() < Duration::from_secs(60), "nothing is written");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

#[test]
fn a_killed_process_leaves_no_file_of_that_name() {
    let folder = Folder::new();
    let mut child = under_way(&folder);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!folder.path("m.gguf").exists());
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_nothing() {
    let folder = Folder::new();
    let child = under_way(&folder);
    let sent = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    assert!(sent.success());
    assert_refused(&child.wait_with_output().unwrap(), 1, &["m.gguf: interrupted"]);
    assert_eq!(fs::read_dir(folder.path("m.gguf").parent().unwrap()).unwrap().count(), 0);
}

/// Without a file, without a network.
#[test]
fn commands_run_a_model_from_memory() {
    let folder = Folder::new();
    let run = |args: &[&str]| lanemap(args).env("LANEMAP_CACHE", folder.path("none")).output().unwrap();
    let report = run(&["bench", "--synth", "tiny:q4_k_m", "-p", "8", "-n", "2", "-r", "1", "-o", "json"]);
    assert!(report.status.success(), "{}", text(&report.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    assert_eq!(rows[0]["model_filename"], "synth:tiny:q4_k_m");
    assert!(rows[1]["avg_ts"].as_f64().unwrap() > 0.0);

    for shape in tiny() {
        let name = format!("{}:q8_0", shape.name);
        let said = run(&["generate", "--synth", &name, "-n", "5", "--ignore-eos", "--json", "Hi!"]);
        let object = support::command::json(&said);
        assert_eq!(object["prompt_ids"], serde_json::json!([b'H', b'i', b'!']));
        assert_eq!(object["generated_ids"].as_array().unwrap().len(), 5);
    }
    assert_refused(&run(&["bench", "--synth", "tiny:q4_k_m", "-m", "m.gguf"]), 2, &["--synth", "--model"]);
    assert_refused(&run(&["bench", "--synth", "tiny"]), 2, &["SHAPE:MIX", "tiny-qwen2"]);
}
