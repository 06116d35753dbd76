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
use lanemap::gate::tolerance::limit;
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

/// Roundings to f16 on the CPU that logits on a GPU are held to, as in `lanemap gate tolerance`.
const DRAWS: u32 = 3;
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

/// Of logits that stand side by side, by how much those of the prompt's row and of steps' are off at most.
fn off(found: &[Vec<f32>], expected: &[Vec<f32>]) -> [f64; 2] {
    let mut worst = [0.0_f64; 2];
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        for (&found, &expected) in found.iter().zip(expected) {
            let error = f64::from((found - expected).abs());
            assert!(error.is_finite(), "step {step}: {found}, exact {expected}");
            let worst = &mut worst[usize::from(step > 0)];
            *worst = worst.max(error);
        }
    }
    worst
}

/// Prompts and the tokens that llama.cpp generates after them, evaluated on a GPU and by the CPU's exact
/// mode: all logits, which may be off by what the [gate](limit) allows; and which tokens the GPU chooses, against both.
fn check_gpu(id: &str, test: &str) {
    let Some(device) = device(test) else { return };
    let Some(path) = support::models::real_model(id) else { return };
    let model = load(&path);
    let goldens = support::models::goldens(id);
    let records: Vec<_> = goldens.iter().filter(|record| record["greedy"].is_array()).collect();
    let inputs: Vec<_> =
        records.iter().map(|record| (ids(&record["tokens"]), ids(&record["greedy"]))).collect();
    let rows_of = |session: &mut Session| -> Vec<Vec<Vec<f32>>> {
        inputs.iter().map(|(tokens, greedy)| fed(session, tokens, greedy)).collect()
    };
    let exact = rows_of(&mut session(Arc::clone(&model), Arithmetic::Exact));
    let mut yardsticks = [Vec::new(), Vec::new()];
    for draw in 0..DRAWS {
        let rounded = rows_of(&mut session(Arc::clone(&model), Arithmetic::Half { draw }));
        for (found, expected) in rounded.iter().zip(&exact) {
            let [prompt, steps] = off(found, expected);
            yardsticks[0].push(prompt);
            yardsticks[1].push(steps);
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
        let mut agreement = Agreement::default();
        for ((found, expected), record) in rows_of(&mut gpu).iter().zip(&exact).zip(&records) {
            let (greedy, gaps) = (ids(&record["greedy"]), numbers(&record["gaps"]));
            let what = format!("{id}: {options}: {}", record["text"]);
            assert_eq!((found.len(), expected.len()), (greedy.len(), gaps.len()), "{what}");
            for (worst, off) in agreement.worst.iter_mut().zip(off(found, expected)) {
                *worst = worst.max(off);
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
                agreement.same += usize::from(chosen == token);
                agreement.compared += 1;
            }
        }
        let Agreement { worst, compared, same } = agreement;
        let said = format!(
            "{id}: {options}: {compared} rows of logits, the worst of prompts and of steps off by {worst:.4?} (allowed \
             {limits:.4?}), {same} tokens are llama.cpp's"
        );
        println!("{said}");
        assert!(worst.iter().zip(&limits).all(|(worst, limit)| worst <= limit), "{said}");
    }
}

/// How a GPU compares.
#[derive(Default)]
struct Agreement {
    /// Of prompts, and of steps.
    worst: [f64; 2],
    compared: usize,
    /// Tokens that are llama.cpp's.
    same: usize,
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
