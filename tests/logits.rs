//! The decoder on real models, held against recorded values of independent tools.
//!
//! Fields of the records and the tolerances: `tests/data/goldens/README.md`.

mod support;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use lanemap::cpu::{CpuBackend, CpuOptions};
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

fn session(path: &Path, exact: bool, context: usize) -> Session {
    let gguf = Arc::new(Gguf::open(path).expect("a readable model"));
    let model = Arc::new(Model::load(gguf).expect("a model that the decoder runs"));
    let backend = CpuBackend::new(model, CpuOptions { threads: 0, exact }).expect("threads");
    Session::new(Box::new(backend), context).expect("memory for the KV cache")
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
    let mut session = session(&path, bound.exact, 1024);
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
