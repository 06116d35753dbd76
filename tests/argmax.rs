//! `argmax` against a plain search.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::attention::KvPlace;
use gpu::sampling::NO_TOKEN;
use lanemap::cuda::Error;
use lanemap::cuda::ops::{self, argmax_workspace};
use machine::{Guarded, Machine, assert_refused, counted, on_both};
use random::{Random, normals};

on_both! {
    the_largest_is_found_wherever_it_is,
    ties_and_nan_are_decided,
    positions_move_on,
    arguments_outside_the_contract_are_refused,
}

fn run<M: Machine>(machine: &M, logits: &[f32], vocabulary: usize) -> Vec<u32> {
    let rows = logits.len() / vocabulary;
    let logits = Guarded::input(machine, "logits", logits, 4);
    counted(machine, rows, 4, |queue, tokens| {
        let mut workspace = Guarded::<u64>::output(queue, "workspace", argmax_workspace(rows, vocabulary), 8);
        ops::argmax(queue, tokens, logits.view(), workspace.view_mut(), None, [rows, vocabulary])?;
        queue.synchronize()?;
        workspace.read();
        Ok(())
    })
    .0
}

fn the_largest_is_found_wherever_it_is<M: Machine>(machine: &M) {
    let seed = 81;
    let mut random = Random(seed);
    let shapes = [(1, 1), (3, 2), (2, 255), (3, 4096), (2, 4097), (1, 49_153)];
    for (rows, vocabulary) in machine.cases(&shapes, &[(5, 262_144), (1, 2_000_003)]) {
        let mut logits = normals(&mut random, rows * vocabulary);
        let largest: Vec<usize> = (0..rows).map(|_| random.below(vocabulary)).collect();
        for (row, &token) in largest.iter().enumerate() {
            // Negative ones too are the largest where all are.
            let shift = if row % 2 == 0 { 0.0 } else { -100.0 };
            let logits = &mut logits[row * vocabulary..(row + 1) * vocabulary];
            logits.iter_mut().for_each(|x| *x += shift);
            logits[token] = 7.0 + shift;
        }
        let found = run(machine, &logits, vocabulary);
        let expected: Vec<u32> = largest.iter().map(|&token| token as u32).collect();
        assert_eq!(found, expected, "{rows} × {vocabulary}, random seed {seed}");
    }
}

fn ties_and_nan_are_decided<M: Machine>(machine: &M) {
    let vocabulary = 5000;
    let with = |all: f32, some: &[(usize, f32)]| {
        let mut row = vec![all; vocabulary];
        some.iter().for_each(|&(token, logit)| row[token] = logit);
        row
    };
    let rows = [
        (with(1.0, &[(4999, 2.0), (4998, 2.0), (300, 2.0)]), 300),
        (with(f32::NAN, &[(4500, f32::NEG_INFINITY)]), NO_TOKEN),
        (with(-1.0, &[(4097, -0.0), (4098, 0.0)]), 4097),
        (with(9.0, &[(4999, -f32::NAN)]), NO_TOKEN),
        (with(f32::NEG_INFINITY, &[]), 0),
        (with(0.0, &[(7, f32::INFINITY)]), NO_TOKEN),
    ];
    let logits: Vec<f32> = rows.iter().flat_map(|(row, _)| row.clone()).collect();
    assert_eq!(run(machine, &logits, vocabulary), rows.map(|(_, token)| token));
}

fn positions_move_on<M: Machine>(machine: &M) {
    let logits = machine.input("logits", &[0.0_f32, 1.0, 3.0, 2.0]).unwrap();
    let place = |position| KvPlace { start: 64, position, context: 9 };
    let mut places = machine.in_out("places", &[place(4), place(8)]).unwrap();
    let mut tokens = machine.output("tokens", 2).unwrap();
    let mut workspace = machine.output("workspace", 2).unwrap();
    let moved = Some(places.view_mut());
    ops::argmax(machine, tokens.view_mut(), logits.view(), workspace.view_mut(), moved, [2, 2]).unwrap();
    machine.synchronize().unwrap();
    assert_eq!(places.read().unwrap(), [place(5), place(9)]);
    assert_eq!(tokens.read().unwrap(), [1, 0]);
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let logits = machine.input("logits", &[0.0_f32; 8]).unwrap();
    let mut tokens = machine.output::<u32>("tokens", 2).unwrap();
    let mut workspace = machine.output("workspace", 2).unwrap();
    let mut run = |work: usize, shape| -> Result<(), Error> {
        let workspace = workspace.slice_mut(0..work);
        ops::argmax(machine, tokens.view_mut(), logits.view(), workspace, None, shape)
    };
    assert_refused(run(2, [2, 5]), "argmax: logits has 8 elements, the shape has 10");
    assert_refused(run(1, [2, 4]), "argmax: the workspace has 1 elements, the shape has 2");
    assert_refused(run(2, [2, 0]), "argmax: the vocabulary is empty");
    assert_refused(run(2, [65_536, 4]), "argmax: rows is 65536, the most is 65535");
    assert_refused(run(2, [1, 8]), "argmax: tokens has 2 elements, the shape has 1");
    assert_eq!(tokens.read().unwrap(), [u32::MAX; 2], "nothing ran");
}
