//! The decoder on tiny synthetic models, held against the reference in `support/reference.rs`.
//!
//! Bounds. *Exact mode*: its weights and sums are the reference's, its intermediate values are f32 and
//! so off by 2⁻²⁴ each; and where such an error lifts a key or a value over the edge of an f16, that one
//! element moves by 2⁻¹¹ of itself. One such element of a head moves a score by about 2⁻¹¹ / √head_dim,
//! that is 6e-5 for 64: hence 1e-4 of the row's largest logit.
//! *8-bit mode*: activations are rounded to 1/127 of the largest in a block of at most 256. Nearly
//! normal values have their largest at about 2.9 σ there, so the rounding error's mean square is
//! (2.9 / 127)² / 12 = 4e-5 of the signal's. Four products in a row per layer and one for the output
//! round so: hence a normalized mean square error of `(4 · layers + 1) · 4e-5`, times
//! [`EIGHT_BIT_GAIN`] for what softmax and gates make of their inputs' errors.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use gpu::quant::Format;
use lanemap::cpu::{CpuBackend, CpuOptions};
use lanemap::gguf::Gguf;
use lanemap::model::Model;
use lanemap::session::{Session, SessionError};
use support::tiny::{Spec, Stretch, Tiny, random_tokens};
use support::{Folder, reference};

/// The exact mode's error, in units of a row's largest logit.
const EXACT: f64 = 1e-4;
/// What one rounding of activations to 8 bits adds to the normalized mean square error.
const EIGHT_BIT: f64 = 4e-5;
/// Softmax, gates and the next norm amplify a relative error; a factor of 2 in size covers it.
const EIGHT_BIT_GAIN: f64 = 4.0;

/// Prompt lengths around every tile and chunk.
const LENGTHS: [usize; 8] = [1, 31, 32, 33, 63, 64, 65, 97];

const MODES: [bool; 2] = [true, false];

/// A model in a file, and the file's folder.
struct Loaded {
    model: Arc<Model>,
    _folder: Folder,
}

impl Loaded {
    fn new(tiny: &Tiny) -> Self {
        let folder = Folder::new();
        let gguf = Gguf::open(&tiny.write(&folder)).unwrap();
        Self { model: Arc::new(Model::load(Arc::new(gguf)).unwrap()), _folder: folder }
    }

    fn session(&self, exact: bool, threads: usize) -> Session {
        let backend = CpuBackend::new(Arc::clone(&self.model), CpuOptions { threads, exact }).unwrap();
        Session::new(Box::new(backend), 128).unwrap()
    }
}

fn prefill(session: &mut Session, tokens: &[u32], batch: usize) -> Vec<f32> {
    session.prefill(tokens, batch, &mut |_, _| ControlFlow::Continue(())).unwrap().to_vec()
}

/// The logits after each token, one token at a time.
fn decode(session: &mut Session, tokens: &[u32]) -> Vec<Vec<f32>> {
    tokens.iter().map(|&token| session.decode(token).unwrap().to_vec()).collect()
}

/// Bit patterns, so that a comparison also holds for NaN and the sign of zero.
fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Holds rows of logits to the reference's, in the bound of a mode.
fn compare(what: &str, spec: &Spec, exact: bool, got: &[Vec<f32>], expected: &[Vec<f64>]) {
    assert_eq!(got.len(), expected.len());
    let mut worst = 0.0_f64;
    for (position, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got.len(), spec.vocab, "{what}: logits of position {position}");
        let largest = expected.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        assert!(largest > 0.1 && largest.is_finite(), "{what}: position {position}: the reference is trivial");
        let (error, bound) = if exact { (exact_error(got, expected), EXACT) } else {
            let roundings = (4 * spec.layers + 1) as f64;
            (mean_square_error(got, expected), EIGHT_BIT_GAIN * EIGHT_BIT * roundings)
        };
        // Written so that a NaN fails.
        assert!(error <= bound, "{what}: exact {exact}: position {position}: error {error:.2e}, allowed {bound:.2e}");
        worst = worst.max(error / bound);
    }
    println!("{what}: exact {exact}: worst error {worst:.3} of what is allowed");
}

/// The largest difference, in units of the largest expected value. NaN if there is one.
fn exact_error(got: &[f32], expected: &[f64]) -> f64 {
    let largest = expected.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    got.iter().zip(expected).map(|(got, expected)| (f64::from(*got) - expected).abs() / largest).fold(0.0, maximum)
}

/// The sum of the squared differences over that of the squares. NaN if there is one.
fn mean_square_error(got: &[f32], expected: &[f64]) -> f64 {
    let error: f64 = got.iter().zip(expected).map(|(got, expected)| (f64::from(*got) - expected).powi(2)).sum();
    error / expected.iter().map(|x| x * x).sum::<f64>()
}

/// The larger one, or NaN if one is: `f64::max` would drop it.
fn maximum(a: f64, b: f64) -> f64 {
    if a >= b { a } else { b }
}

/// One model in both modes: every position against the reference, and every prompt length evaluated at
/// once against the same tokens one by one.
fn check(what: &str, spec: Spec) {
    check_tokens(what, spec, 97);
}

fn check_tokens(what: &str, spec: Spec, len: usize) {
    let tiny = Tiny::new(spec);
    let loaded = Loaded::new(&tiny);
    let tokens = random_tokens(spec.vocab, len, spec.seed + 1);
    let expected = reference::logits(&tiny, &tokens);
    for exact in MODES {
        let mut session = loaded.session(exact, 2);
        let rows = decode(&mut session, &tokens);
        compare(what, &spec, exact, &rows, &expected);
        for length in LENGTHS.into_iter().filter(|&length| length <= len) {
            session.rewind(0);
            let whole = prefill(&mut session, &tokens[..length], 512);
            assert_eq!(bits(&whole), bits(&rows[length - 1]), "{what}: exact {exact}: prompt of {length}");
        }
    }
}

#[test]
fn plain_models_of_each_architecture() {
    check("llama", Spec::LLAMA);
    check("qwen2", Spec::QWEN2);
    check("qwen3", Spec::QWEN3);
    check("gemma3", Spec::GEMMA3);
}
