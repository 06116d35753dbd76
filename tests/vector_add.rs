//! `vector_add` against the sums that IEEE 754 defines: there is one right answer, to the bit.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use lanemap::cuda::{Emulated, ops};
use machine::{Guarded, Machine, assert_coalesced, assert_refused, counted, on_both, output};
use random::{Random, normals};

on_both! {
    every_sum_is_exact,
    arguments_outside_the_contract_are_refused,
}

fn every_sum_is_exact<M: Machine>(machine: &M) {
    let seed = 1;
    let mut random = Random(seed);
    for n in machine.cases(&[0, 1, 31, 32, 255, 256, 257, 1000, 65_537], &[1_000_003]) {
        let (a, b) = (normals(&mut random, n), normals(&mut random, n));
        let (left, right) = (Guarded::input(machine, "a", &a, 4), Guarded::input(machine, "b", &b, 4));
        let out: Vec<f32> =
            output(machine, n, |queue, out| ops::vector_add(queue, out, left.view(), right.view()));
        for i in 0..n {
            assert_eq!(out[i].to_bits(), (a[i] + b[i]).to_bits(), "n {n}, [{i}], random seed {seed}");
        }
    }
}

#[test]
fn every_byte_is_moved_once_in_whole_sectors() {
    let machine = &Emulated::new();
    let ones = Guarded::input(machine, "ones", &[1.0_f32; 512], 32);
    let (_, counters) =
        counted(machine, 512, 32, |queue, out| ops::vector_add(queue, out, ones.view(), ones.view()));
    assert_coalesced(counters.global_loads, 2 * 4 * 512);
    assert_coalesced(counters.global_stores, 4 * 512);
    assert_eq!(counters.barriers + counters.shuffles, 0, "nobody waits");
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let input = machine.input("input", &[0.0_f32; 64]).unwrap();
    let mut out = machine.output("out", 64).unwrap();
    let mut run = |a, b| ops::vector_add(machine, out.view_mut(), input.slice(a), input.slice(b));
    assert_refused(run(0..63, 0..64), "vector_add: a has 63 elements, the shape has 64");
    assert_refused(run(0..64, 1..64), "vector_add: b has 63 elements, the shape has 64");
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
