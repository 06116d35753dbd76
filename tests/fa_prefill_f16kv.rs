//! Every attention kernel of a prompt, and every variant of it, against f64 over every ragged edge:
//! lengths around the tiles, with and without positions that are in the cache already, one, four
//! and seven query heads to a KV head, windows shorter than a tile, and rows that see nothing.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;

use gpu::attention::AttnNaive;
use lanemap::cuda::Buffer;
use lanemap::cuda::ops::{self, AttentionShape};
use lanemap::experiment::{Kernel, PARITY, Problem};
use machine::{Machine, assert_close, on_both, say};

on_both! {
    every_kernel_over_every_length,
    windows_and_rows_that_see_nothing,
}

const SEED: u64 = 17;

/// Around a warp's 16 rows, a tile's 32 positions, a block's 64 rows and two of them.
const LENGTHS: [usize; 12] = [1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129];
/// How much of a cache was there before; 37 puts every row at another place of its tile.
const STARTS: [usize; 2] = [0, 37];
/// Query heads, and KV heads.
const HEADS: [[usize; 2]; 3] = [[1, 1], [4, 1], [7, 1]];

/// What the kernel of one thread an element is tried with: it takes any, and computes each score
/// anew for every element.
const NAIVE_HEAD_SIZE: usize = 6;

/// The head sizes that there are kernels for.
fn head_sizes() -> Vec<usize> {
    let mut sizes: Vec<usize> = Kernel::ALL.iter().map(|kernel| head_size(*kernel)).collect();
    sizes.push(NAIVE_HEAD_SIZE);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn head_size(kernel: Kernel) -> usize {
    kernel.tiles().head_size() as usize
}

/// What every kernel of the shape's head size makes of it; the largest error.
fn check<M: Machine>(machine: &M, shape: AttentionShape) -> f64 {
    let problem = Problem::random(shape, SEED);
    let expected: Vec<f64> = (0..shape.tokens).flat_map(|token| problem.reference(token)).collect();
    let inputs = problem.upload(machine).unwrap();
    let mut worst = 0.0_f64;
    let mut compare = |name: &str, found: &[f32]| {
        let what = format!("{name}, {shape:?}, seed {SEED}");
        worst = worst.max(assert_close(&what, found, &expected, |_| PARITY));
    };
    for &kernel in Kernel::ALL.iter().filter(|kernel| head_size(**kernel) == shape.head_size) {
        compare(kernel.name(), &inputs.run(machine, kernel).unwrap());
    }
    if shape.head_size == NAIVE_HEAD_SIZE {
        compare("attn_naive", &naive(machine, &problem));
    }
    worst
}

fn naive<M: Machine>(machine: &M, problem: &Problem) -> Vec<f32> {
    let query = machine.input("query", &problem.query).unwrap();
    let keys = machine.input("keys", &problem.keys).unwrap();
    let values = machine.input("values", &problem.values).unwrap();
    let mut out: Buffer<f32> = machine.output("out", problem.query.len()).unwrap();
    let cache = [keys.view(), values.view()];
    ops::prefill::<AttnNaive>(machine, out.view_mut(), query.view(), cache, &problem.shape).unwrap();
    machine.synchronize().unwrap();
    out.read().unwrap()
}

fn every_kernel_over_every_length<M: Machine>(machine: &M) {
    let mut all = Vec::new();
    for (i, tokens) in LENGTHS.into_iter().enumerate() {
        for (j, start) in STARTS.into_iter().enumerate() {
            all.push((tokens, start, HEADS[(i + j) % 3]));
        }
    }
    // And all of it with all of it, which takes the emulator minutes.
    let mut large = Vec::new();
    for tokens in LENGTHS {
        for start in STARTS {
            large.extend(HEADS.map(|heads| (tokens, start, heads)));
        }
    }
    let cases = machine.cases(&all, &large);
    let mut worst = 0.0_f64;
    for head_size in head_sizes() {
        for &(tokens, start, [heads, kv_heads]) in &cases {
            let shape = AttentionShape::prompt(tokens, start, [heads, kv_heads, head_size]);
            worst = worst.max(check(machine, shape));
        }
    }
    say(&format!(
        "attention on the {}: {} kernels, {} shapes each, worst error {worst:.2e}",
        M::NAME,
        Kernel::ALL.len() + 1,
        cases.len(),
    ));
}

fn windows_and_rows_that_see_nothing<M: Machine>(machine: &M) {
    for head_size in head_sizes() {
        let prompt = |tokens, start| AttentionShape::prompt(tokens, start, [2, 1, head_size]);
        // Shorter than any tile; and so that of the tiles a block goes through, some rows see none
        // of the first and others none of the last.
        check(machine, AttentionShape { window: 5, ..prompt(65, 0) });
        check(machine, AttentionShape { window: 20, ..prompt(70, 50) });
        // The cache ends before the rows: the later ones see nothing at all.
        let some = AttentionShape { window: 8, positions: 64, ..prompt(64, 60) };
        check(machine, some);
        let none = AttentionShape { window: 5, positions: 50, ..prompt(33, 100) };
        check(machine, none);
        let problem = Problem::random(none, SEED);
        assert!(problem.reference(0).iter().all(|&x| x == 0.0), "the case is not what it is meant to be");
        let inputs = problem.upload(machine).unwrap();
        for &kernel in Kernel::ALL.iter().filter(|kernel| head_size == self::head_size(**kernel)) {
            let found = inputs.run(machine, kernel).unwrap();
            assert!(
                found.iter().all(|x| x.to_bits() == 0),
                "{}: a row that sees nothing is +0",
                kernel.name()
            );
        }
    }
}
