#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod counting;
mod numbers;
pub(super) mod reference;
mod waiting;

use std::vec::Vec;

use reference::{Case, Inputs};

use super::{Attention, Scaling, Sight};
use crate::simt::emulator::{Counters, Emulator, EmulatorError, Lane, Memory};
use crate::simt::{Contract, Kernel};

/// The seed of all inputs.
pub(super) const INPUTS: u64 = 0xa77e;

/// A case in the emulator's memory, with nothing in its output yet.
pub(super) fn prepare(case: &Case, inputs: &Inputs) -> (Memory, Attention) {
    let mut memory = Memory::new();
    let problem = Attention {
        out: memory.output("out", inputs.query.len()),
        query: memory.input("query", &inputs.query),
        keys: memory.input("keys", &inputs.keys),
        values: memory.input("values", &inputs.values),
        tokens: case.tokens as u32,
        start: case.start as u32,
        positions: case.positions as u32,
        kv_heads: case.kv_heads as u32,
        group: case.group as u32,
        sight: Sight::new(case.causal, case.window as u32),
        scaling: Scaling::new(case.scale() as f32, case.softcap as f32),
    };
    (memory, problem)
}

/// Plays a kernel under a seed; what it made of the case, every element written once.
fn play<K>(case: &Case, inputs: &Inputs, seed: u64, kernel: fn(Attention) -> K) -> (Vec<f32>, Counters)
where
    K: for<'b> Kernel<Lane<'b>>,
{
    let (mut memory, problem) = prepare(case, inputs);
    let counters = Emulator::new()
        .seed(seed)
        .launch(&mut memory, kernel(problem))
        .unwrap_or_else(|error| panic!("{case:?}: {error}"));
    memory.check_written_once(problem.out).unwrap_or_else(|fault| panic!("{case:?}: {fault}"));
    (memory.values(problem.out), counters)
}

/// The largest error of an output. NaN is an infinite one.
pub(super) fn compare(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let error = |(&got, want): (&f32, &f64)| match (f64::from(got) - want).abs() {
        error if error.is_nan() => f64::INFINITY,
        error => error,
    };
    got.iter().zip(want).map(error).fold(0.0, f64::max)
}
