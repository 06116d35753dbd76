//! `gated` to each form of rows against f64.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;
#[path = "support/rows.rs"]
mod rows;

use gpu::activation::Gate;
use gpu::product::{PanelF16, SlabF16};
use gpu::quant::f16;
use lanemap::cuda::Error;
use lanemap::cuda::ops;
use lanemap::gate::parity::gated::{activation as reference, gated_error};
use machine::{Guarded, Machine, assert_refused, on_both, say};
use random::{Random, normals};
use rows::{Form, Q8};

on_both! {
    every_element_is_within_the_contract,
    extreme_gates_give_their_limits,
    arguments_outside_the_contract_are_refused,
}

/// `gate` and `up` side by side in rows of `2 · width + gap`.
fn run<F: Form, M: Machine>(
    machine: &M,
    activation: Gate,
    both: &[f32],
    width: usize,
    gap: usize,
) -> Vec<f32> {
    let stride = 2 * width + gap;
    let rows = both.len().div_ceil(stride);
    let both = Guarded::input(machine, "gate and up", both, 16);
    let len = if rows == 0 { 0 } else { (rows - 1) * stride + width };
    let (gate, up) = (both.slice(0..len), both.slice(width..width + len));
    F::output(machine, rows, width, |queue, out| {
        ops::gated(queue, out, gate, up, activation, [rows, width, stride])
    })
}

fn every_element_is_within_the_contract<M: Machine>(machine: &M) {
    check::<f32, M>(machine);
    check::<f16, M>(machine);
    check::<PanelF16, M>(machine);
    check::<SlabF16, M>(machine);
    check::<Q8, M>(machine);
}

fn check<F: Form, M: Machine>(machine: &M) {
    let seed = 41;
    let mut random = Random(seed);
    let shapes = [(1, 32, 0), (3, 96, 4), (2, 1024, 0), (2, 1056, 32)];
    let mut worst = 0.0_f64;
    for (rows, width, gap) in machine.cases(&shapes, &[(511, 6912, 0)]) {
        for activation in [Gate::Silu, Gate::GeluTanh] {
            let stride = 2 * width + gap;
            let mut both = normals(&mut random, rows * stride - gap);
            // Gates of every size, both signs.
            both.iter_mut().step_by(3).for_each(|x| *x *= 8.0);
            let out = run::<F, M>(machine, activation, &both, width, gap);
            let at = |i: usize| i / width * stride + i % width;
            let gates = (0..rows * width).map(|i| f64::from(both[at(i)]));
            let expected: Vec<f64> = gates
                .enumerate()
                .map(|(i, x)| reference(activation, x).1 * f64::from(both[at(i) + width]))
                .collect();
            assert!(expected.iter().any(|x| x.abs() > 1.0), "not trivial");
            let bound = |i: usize| gated_error(activation, both[at(i)].into(), both[at(i) + width].into());
            let what = format!("{rows} × {width}, {activation:?} to {}, random seed {seed}", F::NAME);
            worst = worst.max(F::assert_close(&what, &out, &expected, width, bound));
        }
    }
    say(&format!("gated to {} on the {}: worst error {worst:.2e} of the bound", F::NAME, M::NAME));
}

fn extreme_gates_give_their_limits<M: Machine>(machine: &M) {
    let gates = [0.0, -0.0, 30.0, -30.0, 100.0, -100.0, 1e4, -1e4, 1e12, -1e12, f32::MAX / 2.0, -1e30];
    let mut both: Vec<f32> = gates.into_iter().cycle().take(32).collect();
    both.extend([2.0; 32]);
    for activation in [Gate::Silu, Gate::GeluTanh] {
        let out = run::<f32, M>(machine, activation, &both, 32, 0);
        for (&x, &y) in both.iter().zip(&out) {
            let expected = if x > 0.0 { f64::from(x) * 2.0 } else { 0.0 };
            let error = (f64::from(y) - expected).abs();
            assert!(error <= 1e-6 * expected.abs() + 1e-10, "{activation:?} of {x} is {y}");
        }
    }
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let input = machine.input("input", &[0.0_f32; 128]).unwrap();
    let mut out = machine.output::<f16>("out", 64).unwrap();
    let mut run = |len: usize, shape| -> Result<(), Error> {
        let (gate, up) = (input.slice(0..len), input.slice(0..len));
        ops::gated(machine, out.slice_mut(0..64), gate, up, Gate::Silu, shape)
    };
    assert_refused(run(64, [2, 32, 30]), "gated_f16: rows of 32 begin 30 elements apart");
    assert_refused(run(63, [2, 32, 32]), "gated_f16: gate has 63 elements, the shape has 64");
    assert_refused(run(64, [2, 32, 33]), "gated_f16: the stride is 33, not a multiple of 4");
    assert_refused(run(24, [2, 12, 12]), "gated_f16: the width is 12, not a multiple of 8");
    assert_refused(run(40, [1, 40, 40]), "gated_f16: out has 64 elements, the shape has 40");
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
