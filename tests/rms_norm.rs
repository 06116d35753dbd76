//! `rms_norm` against f64.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use lanemap::cuda::{Emulated, Error, ops};
use machine::{
    EPSILON, Guarded, Machine, assert_close, assert_coalesced, assert_refused, counted, on_both, output, say,
};
use random::{Random, normals};

on_both! {
    every_element_is_within_the_contract,
    a_row_of_zeros_stays_zero,
    arguments_outside_the_contract_are_refused,
}

const ROOT_EPSILON: f32 = 1e-5;

/// `input / √(mean of squares + ROOT_EPSILON) · weight`, row by row.
fn reference(input: &[f32], weight: &[f32]) -> Vec<f64> {
    let width = weight.len();
    let normed = input.chunks(width).flat_map(|row| {
        let squares: f64 = row.iter().map(|&x| f64::from(x).powi(2)).sum();
        let root = (squares / width as f64 + f64::from(ROOT_EPSILON)).sqrt();
        row.iter().zip(weight).map(move |(&x, &w)| f64::from(x) / root * f64::from(w))
    });
    normed.collect()
}

fn run<M: Machine>(machine: &M, input: &[f32], weight: &[f32]) -> Vec<f32> {
    let rows = input.len() / weight.len();
    let input = Guarded::input(machine, "input", input, 4);
    let weight = Guarded::input(machine, "weight", weight, 4);
    output(machine, rows * weight.view().len(), |queue, out| {
        ops::rms_norm(queue, out, input.view(), weight.view(), rows, ROOT_EPSILON)
    })
}

fn every_element_is_within_the_contract<M: Machine>(machine: &M) {
    let seed = 3;
    let mut random = Random(seed);
    let shapes = [(1, 1), (3, 31), (2, 255), (5, 256), (7, 257), (4, 1000), (2, 4097), (33, 576)];
    let mut worst = 0.0_f64;
    for (rows, width) in machine.cases(&shapes, &[(1031, 2048)]) {
        let (x, w) = (normals(&mut random, rows * width), normals(&mut random, width));
        let out = run(machine, &x, &w);
        let expected = reference(&x, &w);
        // The sum's roundings count half under the root: width / 256 of a thread, 5 of a
        // butterfly, 8 of the partial sums, 2 of mean and epsilon. The root is off by 2^-22.9,
        // two products round.
        let roundings = ((width.div_ceil(256) + 15) as f64 / 2.0 + 2.0) * EPSILON + (-22.9_f64).exp2();
        let bound = |i: usize| roundings * 1.001 * expected[i].abs() + f64::from(f32::MIN_POSITIVE);
        assert_close(&format!("{rows} × {width}, random seed {seed}"), &out, &expected, bound);
        let error = |(&found, expected): (&f32, &f64)| (f64::from(found) - expected).abs() / expected.abs();
        worst = out.iter().zip(&expected).map(error).fold(worst, f64::max);
    }
    say(&format!("rms_norm on the {}: worst relative error {worst:.2e}", M::NAME));
}

fn a_row_of_zeros_stays_zero<M: Machine>(machine: &M) {
    let mut random = Random(4);
    let weight = normals(&mut random, 300);
    let out = run(machine, &[0.0; 600], &weight);
    assert!(out.iter().all(|&x| x == 0.0), "nothing was divided by zero");
}

#[test]
fn every_byte_is_moved_in_whole_sectors() {
    let machine = &Emulated::new();
    let (rows, width) = (3_usize, 512_usize);
    let input = Guarded::input(machine, "input", &vec![1.0; rows * width], 32);
    let weight = Guarded::input(machine, "weight", &vec![1.0; width], 32);
    let (_, counters) = counted(machine, rows * width, 32, |queue, out| {
        ops::rms_norm(queue, out, input.view(), weight.view(), rows, ROOT_EPSILON)
    });
    let (rows, elements) = (rows as u64, (rows * width) as u64);
    assert_eq!(counters.barriers, rows, "one for each block");
    assert_eq!(counters.shuffles, rows * 8 * 5, "five steps of a butterfly in each warp");
    assert_eq!(counters.shared_loads.instructions, rows * 8 * 8, "every warp adds eight partial sums");
    assert_eq!(counters.shared_loads.conflicts, 0, "which are broadcast");
    // The input twice, the weight once for each row; coalesced.
    assert_coalesced(counters.global_loads, 3 * 4 * elements);
    assert_coalesced(counters.global_stores, 4 * elements);
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let input = machine.input("input", &[0.0_f32; 60]).unwrap();
    let weight = machine.input("weight", &[0.0_f32; 20]).unwrap();
    let mut out = machine.output("out", 60).unwrap();
    let mut run = |len, part, rows| -> Result<(), Error> {
        ops::rms_norm(machine, out.slice_mut(0..len), input.slice(part), weight.view(), rows, ROOT_EPSILON)
    };
    assert_refused(run(59, 0..60, 3), "rms_norm: out has 59 elements, the shape has 60");
    assert_refused(run(60, 1..60, 3), "rms_norm: input has 59 elements, the shape has 60");
    assert_refused(run(60, 0..60, 2), "rms_norm: out has 60 elements, the shape has 40");
    let most = "rms_norm: rows is 2147483648, the most is 2147483647";
    assert_refused(run(60, 0..60, 1 << 31), most);
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
    let mut none = machine.output("none", 0).unwrap();
    ops::rms_norm(machine, none.view_mut(), input.slice(0..0), weight.view(), 0, ROOT_EPSILON).unwrap();
    machine.synchronize().unwrap();
}
