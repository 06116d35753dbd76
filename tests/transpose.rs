//! `transpose_conflicted` and `transpose_padded`: every element arrives where it belongs, and the
//! padding takes away the bank conflicts that its description says it does.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;

use gpu::simt::emulator::Counters;
use lanemap::cuda::{Emulated, ops};
use machine::{Guarded, Machine, assert_coalesced, assert_refused, counted, on_both, output};

on_both! {
    every_element_arrives,
    arguments_outside_the_contract_are_refused,
}

/// Every number below 2^24 is an f32: each element has its own.
fn numbered(elements: usize) -> Vec<f32> {
    assert!(elements <= 1 << 24);
    (0..elements).map(|i| i as f32).collect()
}

fn each_arrives<const PAD: u32, M: Machine>(machine: &M) {
    let shapes = [(1, 1), (1, 33), (33, 1), (31, 65), (32, 32), (64, 96), (127, 257), (1025, 300)];
    for (rows, columns) in machine.cases(&shapes, &[(3000, 2001)]) {
        let input = Guarded::input(machine, "input", &numbered(rows * columns), 4);
        let out: Vec<f32> = output(machine, rows * columns, |queue, out| {
            ops::transpose::<PAD>(queue, out, input.view(), rows, columns)
        });
        for (i, &found) in out.iter().enumerate() {
            let (column, row) = (i / rows, i % rows);
            let expected = (row * columns + column) as f32;
            assert!(found == expected, "{rows} × {columns}, ({column}, {row}): {found}, not {expected}");
        }
    }
}

fn every_element_arrives<M: Machine>(machine: &M) {
    each_arrives::<0, M>(machine);
    each_arrives::<1, M>(machine);
}

/// What it costs to transpose 2 × 3 tiles.
fn cost<const PAD: u32>() -> Counters {
    let (rows, columns) = (64, 96);
    let machine = &Emulated::new();
    let input = Guarded::input(machine, "input", &numbered(rows * columns), 32);
    let (_, counters) = counted::<f32, _>(machine, rows * columns, 32, |queue, out| {
        ops::transpose::<PAD>(queue, out, input.view(), rows, columns)
    });
    counters
}

#[test]
fn the_padding_removes_every_conflict() {
    let (conflicted, padded) = (cost::<0>(), cost::<1>());
    // 6 tiles of 32 rows, one instruction of a warp for each row and direction.
    let instructions = 6 * 32;
    for counters in [conflicted, padded] {
        assert_eq!(counters.barriers, 6);
        assert_eq!(counters.shared_loads.instructions, instructions);
        assert_eq!(counters.shared_stores.wavefronts, instructions);
        assert_eq!(counters.shared_stores.conflicts, 0);
        assert_coalesced(counters.global_loads, 4 * 64 * 96);
        assert_coalesced(counters.global_stores, 4 * 64 * 96);
    }
    assert_eq!(conflicted.shared_loads.wavefronts, 32 * instructions);
    assert_eq!(conflicted.shared_loads.conflicts, 31 * instructions);
    assert_eq!(padded.shared_loads.wavefronts, instructions);
    assert_eq!(padded.shared_loads.conflicts, 0);
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let input = machine.input("input", &[0.0_f32; 15]).unwrap();
    let mut out = machine.output("out", 15).unwrap();
    let mut run = |len, part, rows, columns| {
        ops::transpose::<1>(machine, out.slice_mut(0..len), input.slice(part), rows, columns)
    };
    let refused = assert_refused;
    refused(run(14, 0..15, 3, 5), "transpose_padded: out has 14 elements, the shape has 15");
    refused(run(15, 1..15, 3, 5), "transpose_padded: input has 14 elements, the shape has 15");
    refused(run(15, 0..15, 3, 4), "transpose_padded: out has 15 elements, the shape has 12");
    refused(run(15, 0..15, 2_097_121, 1), "transpose_padded: rows is 2097121, the most is 2097120");
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
