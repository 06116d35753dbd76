//! `block_sum` against f64.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::basics::BlockSum;
use lanemap::cuda::{Emulated, ops};
use machine::{
    EPSILON, Guarded, Machine, assert_close, assert_coalesced, assert_refused, counted, on_both, output,
};
use random::{Random, normals};

on_both! {
    every_sum_is_within_its_roundings,
    sums_of_integers_are_exact,
    arguments_outside_the_contract_are_refused,
}

const LENGTHS: [usize; 11] = [0, 1, 31, 33, 255, 257, 1023, 1024, 1025, 2049, 100_003];

/// The sum of every 1024 elements begun.
fn reference(input: impl Iterator<Item = f32> + Clone) -> Vec<f64> {
    let input: Vec<f64> = input.map(f64::from).collect();
    input.chunks(1024).map(|block| block.iter().sum()).collect()
}

fn run<M: Machine>(machine: &M, input: &[f32]) -> Vec<f32> {
    let elements = Guarded::input(machine, "input", input, 4);
    let sums = BlockSum::sums(input.len() as u32) as usize;
    output(machine, sums, |queue, out| ops::block_sum(queue, out, elements.view()))
}

fn every_sum_is_within_its_roundings<M: Machine>(machine: &M) {
    let seed = 2;
    let mut random = Random(seed);
    for n in LENGTHS {
        let x = normals(&mut random, n);
        let out = run(machine, &x);
        let (expected, sizes) = (reference(x.iter().copied()), reference(x.iter().map(|x| x.abs())));
        // 3 sums of a thread, 5 and 5 of butterflies: 13 roundings on the way of any element.
        let bound = |i: usize| 13.0 * EPSILON * sizes[i] * 1.001;
        assert_close(&format!("n {n}, random seed {seed}"), &out, &expected, bound);
    }
}

/// Each element has its own number, and no sum rounds: one that is missing or twice there shows.
fn sums_of_integers_are_exact<M: Machine>(machine: &M) {
    for n in LENGTHS {
        let x: Vec<f32> = (1..=n).map(|i| (i % 8191) as f32).collect();
        assert_close(&format!("n {n}"), &run(machine, &x), &reference(x.iter().copied()), |_| 0.0);
    }
}

#[test]
fn one_barrier_a_block_and_whole_sectors() {
    let machine = &Emulated::new();
    let ones = Guarded::input(machine, "ones", &[1.0_f32; 2048], 32);
    let (sums, counters) = counted(machine, 2, 32, |queue, out| ops::block_sum(queue, out, ones.view()));
    assert_eq!(sums, [1024.0_f32; 2]);
    assert_coalesced(counters.global_loads, 4 * 2048);
    assert_eq!(counters.global_stores.bytes, 2 * 4);
    assert_eq!(counters.barriers, 2);
    assert_eq!(counters.shared_stores.instructions, 2 * 8, "one partial sum a warp");
    assert_eq!(counters.shared_loads.conflicts + counters.shared_stores.conflicts, 0);
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let input = machine.input("input", &[0.0_f32; 1025]).unwrap();
    let mut out = machine.output("out", 2).unwrap();
    let mut run = |sums, n| ops::block_sum(machine, out.slice_mut(0..sums), input.slice(0..n));
    assert_refused(run(1, 1025), "block_sum: out has 1 elements, the shape has 2");
    assert_refused(run(2, 1024), "block_sum: out has 2 elements, the shape has 1");
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
