//! The decoder on real models, held against recorded values of independent tools.
//!
//! Fields of the records and the tolerances: `tests/data/goldens/README.md`.

mod support;

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use lanemap::cpu::{Arithmetic, CpuBackend, CpuOptions};
use lanemap::cuda::backend::{ActivationKind, GpuBackend, GpuOptions};
use lanemap::cuda::{Device, Error};
use lanemap::gate::tolerance::{DRAWS, limit};
use lanemap::gguf::Gguf;
use lanemap::model::Model;
use lanemap::session::Session;
use serde_json::Value;

/// What a mode is held to: logits within `logit`, tokens equal wherever the gap exceeds `gap`.
struct Bound {
    exact: bool,
    logit: f64,
    gap: f64,
}

/// Held to the exact pass of an independent tool.
const EXACT: Bound = Bound { exact: true, logit: 0.02, gap: 0.05 };
/// Held to the same pass: 8-bit activations move a logit by up to 1.
const EIGHT_BIT: Bound = Bound { exact: false, logit: 1.0, gap: 0.5 };

#[test]
fn smollm2_exact() {
    check("smollm2-135m", &EXACT);
}

#[test]
fn smollm2_eight_bit() {
    check("smollm2-135m", &EIGHT_BIT);
}

#[test]
fn gemma3_exact() {
    check("gemma3-270m", &EXACT);
}

#[test]
fn gemma3_eight_bit() {
    check("gemma3-270m", &EIGHT_BIT);
}

fn load(path: &Path) -> Arc<Model> {
    let gguf = Arc::new(Gguf::open(path).expect("a readable model"));
    Arc::new(Model::load(gguf).expect("a model that the decoder runs"))
}

fn session(model: Arc<Model>, arithmetic: Arithmetic) -> Session {
    let backend = CpuBackend::new(model, CpuOptions { threads: 0, arithmetic }).expect("threads");
    Session::new(Box::new(backend), 1024).expect("memory for the KV cache")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("an array").iter().map(|x| x.as_f64().expect("a number")).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    numbers(value).into_iter().map(|x| x as u32).collect()
}

fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, &logit) in logits.iter().enumerate() {
        assert!(logit.is_finite(), "logit {id} is {logit}");
        if logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

fn check(id: &str, bound: &Bound) {
    let Some(path) = support::models::real_model(id) else { return };
    let records = support::models::goldens(id);
    let mut worst = 0.0f64;
    let (mut compared, mut streams) = (0, 0);
    let mut session = session(load(&path), Arithmetic::exact_if(bound.exact));
    for record in records.iter().filter(|record| record["exact_top"].is_array()) {
        let text = record["text"].as_str().expect("a text");
        session.rewind(0);
        let tokens = ids(&record["tokens"]);
        let mut logits = session
            .prefill(&tokens, 512, &mut |_, _| ControlFlow::Continue(()))
            .expect("a prompt within the context")
            .to_vec();
        for pair in record["exact_top"].as_array().expect("an array") {
            let pair = numbers(pair);
            let (token, expected) = (pair[0] as usize, pair[1]);
            let error = (f64::from(logits[token]) - expected).abs();
            assert!(
                error <= bound.logit,
                "{id}: {text:?}: logit {token} is {}, recorded {expected}, error {error}",
                logits[token]
            );
            worst = worst.max(error);
        }
        let (greedy, gaps) = (ids(&record["exact_greedy"]), numbers(&record["exact_gaps"]));
        for (step, (&expected, &gap)) in greedy.iter().zip(&gaps).enumerate() {
            let token = argmax(&logits);
            if token != expected {
                assert!(
                    gap <= bound.gap,
                    "{id}: {text:?}: token {step} is {token}, recorded {expected}, whose gap is {gap}"
                );
                // After an honest difference the rest of the stream proves nothing.
                break;
            }
            compared += 1;
            logits = session.decode(token).expect("room in the context").to_vec();
        }
        streams += 1;
    }
    assert!(streams >= 10, "only {streams} records with an exact pass");
    println!(
        "{id}: exact {}: {streams} prompts, {compared} greedy tokens equal, worst logit error {worst:.4}",
        bound.exact
    );
}

/// The gap between the two largest logits above which both must choose the same token.
const GPU_GAP: f32 = 0.5;

#[test]
fn smollm2_on_a_gpu() {
    check_gpu("smollm2-135m", "smollm2_on_a_gpu");
}

#[test]
fn gemma3_on_a_gpu() {
    check_gpu("gemma3-270m", "gemma3_on_a_gpu");
}

/// The first GPU, or `None` after a word on why there is none. (The tests that a bundle takes along get
/// theirs from `support/machine.rs`; this one needs the models' files besides.)
fn device(test: &str) -> Option<Device> {
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(Error::Unavailable(why)) => {
            // `eprintln!` would be kept back, as all output of tests that pass.
            let _ = std::io::stderr().write_all(format!("NO DEVICE: {test}: {why}\n").as_bytes());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The two largest logits apart.
fn gap(logits: &[f32]) -> f32 {
    let best = argmax(logits) as usize;
    let second = logits.iter().enumerate().filter(|&(id, _)| id != best).map(|(_, &logit)| logit);
    logits[best] - second.fold(f32::NEG_INFINITY, f32::max)
}

/// A logit that is off from the exact mode's.
#[derive(Clone, Debug, Default)]
struct Off {
    by: f64,
    /// Where, and both values.
    what: String,
}

/// The logits that are off most, of rows that stand side by side: behind the prompt, and behind generated tokens.
fn off(what: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) -> [Off; 2] {
    assert_eq!(found.len(), expected.len(), "{what}");
    let mut worst = [Off::default(), Off::default()];
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{what}: step {step}");
        for (token, (found, expected)) in found.iter().zip(expected).enumerate() {
            let by = f64::from((found - expected).abs());
            assert!(by.is_finite(), "{what}: step {step}: the logit of token {token} is {found}");
            let worst = &mut worst[usize::from(step > 0)];
            if by > worst.by {
                let what =
                    format!("{what}: step {step}: the logit of token {token} is {found}, exact {expected}");
                *worst = Off { by, what };
            }
        }
    }
    worst
}

/// Prompts and the tokens that llama.cpp generates after them, evaluated on a GPU and by the CPU's exact
/// mode: all logits behind them, which may be off by what the [gate](limit) allows; and which tokens the GPU chooses,
/// against both.
fn check_gpu(id: &str, test: &str) {
    let Some(device) = device(test) else { return };
    let Some(path) = support::models::real_model(id) else { return };
    let model = load(&path);
    let goldens = support::models::goldens(id);
    let records: Vec<_> = goldens.iter().filter(|record| record["greedy"].is_array()).collect();
    assert!(records.len() >= 10, "only {} records", records.len());
    let rows = |session: &mut Session, record: &Value| {
        fed(session, &ids(&record["tokens"]), &ids(&record["greedy"]))
    };
    let mut exact = session(Arc::clone(&model), Arithmetic::Exact);
    let exact: Vec<_> = records.iter().map(|record| rows(&mut exact, record)).collect();
    let mut yardsticks = [Vec::new(), Vec::new()];
    for draw in 0..DRAWS {
        let mut rounded = session(Arc::clone(&model), Arithmetic::Half { draw });
        for (record, expected) in records.iter().zip(&exact) {
            let worst = off(&format!("{id}: draw {draw}"), &rows(&mut rounded, record), expected);
            for (yardsticks, worst) in yardsticks.iter_mut().zip(worst) {
                yardsticks.push(worst.by);
            }
        }
    }
    let limits = yardsticks.map(limit);

    let fastest = GpuOptions::fastest(&device.stream().expect("a stream"));
    let alone = |kind| GpuOptions::steady(kind, kind);
    // What a session for one sequence reads, and what one for many does.
    let of_many = GpuOptions::steady(fastest.prompt, fastest.step_of_many);
    for options in [alone(ActivationKind::F16), alone(ActivationKind::Q8), fastest, of_many] {
        let stream = device.stream().expect("a stream");
        let backend = GpuBackend::new(stream, Arc::clone(&model), options, &mut |_, _| ()).expect("memory");
        let mut gpu = Session::new(Box::new(backend), 1024).expect("memory for the KV cache");
        let mut worst = [Off::default(), Off::default()];
        let (mut compared, mut same) = (0, 0);
        for (record, expected) in records.iter().zip(&exact) {
            let found = rows(&mut gpu, record);
            let (greedy, gaps) = (ids(&record["greedy"]), numbers(&record["gaps"]));
            let what = format!("{id}: {options}: {}", record["text"]);
            assert_eq!((found.len(), gaps.len()), (greedy.len(), greedy.len()), "{what}");
            for (worst, off) in worst.iter_mut().zip(off(&what, &found, expected)) {
                if off.by > worst.by {
                    *worst = off;
                }
            }
            for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
                let (chosen, token, peer_gap) = (argmax(found), greedy[step], gaps[step]);
                assert!(
                    chosen == argmax(expected) || gap(expected) <= GPU_GAP,
                    "{what}: step {step}: {chosen}, exact has a gap of {}",
                    gap(expected)
                );
                // The inputs are llama.cpp's at every step.
                assert!(
                    chosen == token || peer_gap <= f64::from(GPU_GAP),
                    "{what}: step {step}: {chosen}, llama.cpp has {token} with a gap of {peer_gap}"
                );
                same += usize::from(chosen == token);
                compared += 1;
            }
        }
        let by = worst.each_ref().map(|worst| worst.by);
        println!(
            "{id}: {options}: {compared} rows of logits, behind prompts and behind steps off by {by:.4?} at most (allowed \
             {limits:.4?}), {same} tokens are llama.cpp's"
        );
        for (worst, limit) in worst.iter().zip(limits) {
            assert!(worst.by <= limit, "{}, off by {:.4}, allowed {limit:.4}", worst.what, worst.by);
        }
    }
}

/// The logits that each of the tokens of `greedy` is chosen from behind a prompt.
fn fed(session: &mut Session, prompt: &[u32], greedy: &[u32]) -> Vec<Vec<f32>> {
    let go = &mut |_: usize, _: usize| ControlFlow::Continue(());
    session.rewind(0);
    let mut rows = vec![session.prefill(prompt, 512, go).expect("a prompt").to_vec()];
    for &token in &greedy[..greedy.len() - 1] {
        rows.push(session.decode(token).expect("room in the context").to_vec());
    }
    rows
}
