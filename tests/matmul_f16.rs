//! `matmul_f16` against f64.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
#[allow(dead_code, reason = "this binary uses a part of it")]
mod random;

use gpu::product::MatmulGeometry;
use half::f16;
use lanemap::cuda::{Emulated, ops};
use machine::{
    Guarded, Machine, assert_close, assert_refused, counted, on_both, output, say, tensor_core_error,
};
use random::{Random, normal};

on_both! {
    products_of_integers_are_exact,
    products_of_normals_are_within_the_rounding_of_their_sums,
    arguments_outside_the_contract_are_refused,
}

/// `[m, n, k]`, ragged in every way that the contract admits.
const SHAPES: [[usize; 3]; 10] = [
    [1, 1, 8],
    [1, 65, 24],
    [63, 1, 32],
    [64, 64, 32],
    [65, 63, 40],
    [64, 128, 96],
    [130, 33, 128],
    [3, 200, 4096],
    [200, 3, 64],
    [17, 17, 0],
];

/// Those that take the emulator too long.
const LARGE: [[usize; 3]; 2] = [[127, 129, 1000], [300, 70, 520]];

/// `input · weightsᵀ`.
fn reference(input: &[f16], weights: &[f16], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let element = |row: usize, column: usize| -> f64 {
        let products = input[row * k..][..k].iter().zip(&weights[column * k..][..k]);
        products.map(|(a, b)| a.to_f64() * b.to_f64()).sum()
    };
    (0..m * n).map(|i| element(i / n, i % n)).collect()
}

/// The contract's alignment: what an asynchronous copy moves.
const ALIGN: usize = 16;

fn run<M: Machine>(machine: &M, input: &[f16], weights: &[f16], shape: [usize; 3]) -> Vec<f32> {
    let input = Guarded::input(machine, "input", input, ALIGN);
    let weights = Guarded::input(machine, "weights", weights, ALIGN);
    output(machine, shape[0] * shape[1], |queue, out| {
        ops::matmul_f16(queue, out, input.view(), weights.view(), shape)
    })
}

fn products_of_integers_are_exact<M: Machine>(machine: &M) {
    let seed = 4;
    let mut random = Random(seed);
    for shape @ [m, n, k] in machine.cases(&SHAPES, &LARGE) {
        // Sums stay far below 2^24, so that every order of summing gives the same bits.
        let mut integers =
            |len| -> Vec<f16> { (0..len).map(|_| f16::from_f32(random.below(17) as f32 - 8.0)).collect() };
        let (x, w) = (integers(m * k), integers(n * k));
        let out = run(machine, &x, &w, shape);
        let what = format!("{m} × {n} × {k}, random seed {seed}");
        assert_close(&what, &out, &reference(&x, &w, shape), |_| 0.0);
    }
}

fn products_of_normals_are_within_the_rounding_of_their_sums<M: Machine>(machine: &M) {
    let seed = 5;
    let mut random = Random(seed);
    let mut worst = 0.0_f64;
    for shape @ [m, n, k] in machine.cases(&SHAPES, &LARGE) {
        let mut halves = |len| -> Vec<f16> { (0..len).map(|_| f16::from_f64(normal(&mut random))).collect() };
        let (x, w) = (halves(m * k), halves(n * k));
        let out = run(machine, &x, &w, shape);
        let what = format!("{m} × {n} × {k}, random seed {seed}");
        let bound = |i: usize| {
            let factors = x[i / n * k..][..k].iter().zip(&w[i % n * k..][..k]);
            tensor_core_error::<M>(&factors.map(|(x, w)| (x.to_f64(), w.to_f64())).collect::<Vec<_>>())
        };
        worst = worst.max(assert_close(&what, &out, &reference(&x, &w, shape), bound));
    }
    say(&format!("matmul_f16 on the {}: worst error {worst:.2e}", M::NAME));
}

#[test]
fn tiles_are_multiplied_without_conflicts_and_waits_to_spare() {
    let machine = &Emulated::new();
    for shape @ [m, n, k] in [[1, 1, 8], [64, 64, 32], [65, 70, 72], [130, 33, 128]] {
        let input = Guarded::input(machine, "input", &vec![f16::ONE; m * k], ALIGN);
        let weights = Guarded::input(machine, "weights", &vec![f16::ONE; n * k], ALIGN);
        let (_, counters) = counted::<f32, _>(machine, m * n, 4, |queue, out| {
            ops::matmul_f16(queue, out, input.view(), weights.view(), shape)
        });
        let blocks = MatmulGeometry::grid(m as u32, n as u32).count();
        let steps = k.div_ceil(MatmulGeometry::TILE_K as usize) as u64;
        // 4 warps, 2 × 2 tiles and 2 halves of a step each.
        assert_eq!(counters.wmma_mma, blocks * steps * 4 * 8);
        assert_eq!(counters.barriers, blocks * (steps + 2));
        assert_eq!(counters.copies.instructions, blocks * steps * 4 * 4);
        assert_eq!(counters.shared_loads.conflicts, 0, "80-byte rows do not conflict");
    }
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    let input = machine.input("input", &[f16::ZERO; 129]).unwrap();
    let mut out = machine.output("out", 64).unwrap();
    let mut run = |len, a, b, shape| {
        ops::matmul_f16(machine, out.slice_mut(0..len), input.slice(a), input.slice(b), shape)
    };
    let refused = assert_refused;
    refused(run(25, 0..60, 0..60, [5, 5, 12]), "matmul_f16: k is 12, not a multiple of 8");
    refused(run(63, 0..64, 0..64, [8, 8, 8]), "matmul_f16: out has 63 elements, the shape has 64");
    refused(run(64, 0..56, 0..64, [8, 8, 8]), "matmul_f16: input has 56 elements, the shape has 64");
    refused(run(64, 0..64, 0..72, [8, 8, 8]), "matmul_f16: weights has 72 elements, the shape has 64");
    let address = input.slice(1..65).start().address();
    let text =
        |name| format!("matmul_f16: {name} begins at {address:#x}, which is not a multiple of 16 bytes");
    refused(run(64, 1..65, 0..64, [8, 8, 8]), &text("input"));
    refused(run(64, 0..64, 1..65, [8, 8, 8]), &text("weights"));
    let most = "matmul_f16: m is 4194241, the most is 4194240";
    refused(run(64, 0..64, 0..64, [4_194_241, 8, 8]), most);
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}
