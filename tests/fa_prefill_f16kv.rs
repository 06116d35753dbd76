//! Every attention kernel of a prompt, and every variant of it, against f64 over every ragged edge:
//! lengths around the tiles, with and without positions that are in the cache already, one, four
//! and seven query heads to a KV head, windows shorter than a tile, and rows that see nothing.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;

use gpu::attention::AttnNaive;
use lanemap::cuda::ops::{self, AttentionShape};
use lanemap::cuda::{Error, ViewMut};
use lanemap::experiment::{Kernel, LENGTHS, PARITY, PREFIX, Problem};
use machine::{Guarded, Machine, assert_close, has_wgmma, on_both, say};

on_both! {
    every_kernel_over_every_length,
    windows_and_rows_that_see_nothing,
}

const SEED: u64 = 17;

/// Query heads, and KV heads: one, four and seven to each.
const HEADS: [[usize; 2]; 3] = [[2, 2], [8, 2], [7, 1]];

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

/// What every kernel of the shape's head size makes of it, those by `wgmma` too if there is that, run by `run`;
/// the largest error.
fn check<M: Machine>(
    machine: &M,
    wgmma: bool,
    shape: AttentionShape,
    run: impl Fn(&M, Launch<'_, M>) -> Vec<f32>,
) -> f64 {
    let problem = Problem::random(shape, SEED);
    let expected: Vec<f64> = (0..shape.tokens).flat_map(|token| problem.reference(token)).collect();
    let query = Guarded::input(machine, "query", &problem.query, 16);
    let keys = Guarded::input(machine, "keys", &problem.keys, 16);
    let values = Guarded::input(machine, "values", &problem.values, 16);
    let cache = || [keys.view(), values.view()];
    let mut worst = 0.0_f64;
    let mut compare = |name: &str, launch: Launch<'_, M>| {
        let what = format!("{name}, {shape:?}, seed {SEED}");
        worst = worst.max(assert_close(&what, &run(machine, launch), &expected, |_| PARITY));
    };
    for &kernel in Kernel::ALL.iter().filter(|kernel| head_size(**kernel) == shape.head_size) {
        compare(kernel.name(), &|queue, out| kernel.launch(queue, out, query.view(), cache(), &shape));
    }
    if let Some(name) = ops::wgmma_kernel(shape.head_size).filter(|_| wgmma) {
        let launch: Launch<'_, M> =
            &|queue, out| ops::prefill_wgmma(queue, out, query.view(), cache(), &shape);
        compare(name, launch);
    }
    if shape.head_size == NAIVE_HEAD_SIZE {
        let launch: Launch<'_, M> =
            &|queue, out| ops::prefill::<AttnNaive>(queue, out, query.view(), cache(), &shape);
        compare("attn_naive", launch);
    }
    worst
}

/// Launches a kernel with this output.
type Launch<'a, M> = &'a dyn Fn(&M, ViewMut<'_, f32>) -> Result<(), Error>;

/// One run, between guard bands, with every element written once.
fn once<M: Machine>(machine: &M, len: usize, launch: Launch<'_, M>) -> Vec<f32> {
    let mut out = Guarded::output(machine, "out", len, 32);
    launch(machine, out.view_mut()).unwrap();
    machine.synchronize().unwrap();
    machine.check_written_once(out.view());
    out.read()
}

fn every_kernel_over_every_length<M: Machine>(machine: &M) {
    let mut all = Vec::new();
    for (i, tokens) in LENGTHS.into_iter().enumerate() {
        for (j, start) in [0, PREFIX].into_iter().enumerate() {
            all.push((tokens, start, HEADS[(i + j) % 3]));
        }
    }
    // And all of it with all of it, which takes the emulator minutes.
    let mut large = Vec::new();
    for tokens in LENGTHS {
        for start in [0, PREFIX] {
            large.extend(HEADS.map(|heads| (tokens, start, heads)));
        }
    }
    let cases = machine.cases(&all, &large);
    let wgmma = has_wgmma(machine, "every_kernel_over_every_length, wgmma");
    let mut worst = 0.0_f64;
    for head_size in head_sizes() {
        for &(tokens, start, [heads, kv_heads]) in &cases {
            let shape = AttentionShape::prompt(tokens, start, [heads, kv_heads, head_size]);
            let len = tokens * heads * head_size;
            worst = worst.max(check(machine, wgmma, shape, |machine, launch| once(machine, len, launch)));
        }
    }
    say(&format!(
        "attention on the {}: {} kernels, {} shapes each, worst error {worst:.2e}",
        M::NAME,
        Kernel::ALL.len() + if wgmma { ops::WGMMA_HEAD_SIZES.len() } else { 0 } + 1,
        cases.len(),
    ));
}

fn windows_and_rows_that_see_nothing<M: Machine>(machine: &M) {
    let wgmma = has_wgmma(machine, "windows_and_rows_that_see_nothing, wgmma");
    for head_size in head_sizes() {
        let prompt = |tokens, start| AttentionShape::prompt(tokens, start, [4, 2, head_size]);
        let shapes = [
            // Shorter than any tile; and so that of the tiles a block goes through, some rows see
            // none of the first and others none of the last.
            AttentionShape { window: 5, ..prompt(65, 0) },
            AttentionShape { window: 20, ..prompt(70, 50) },
            // The cache ends before the rows: the later ones see nothing at all, or none does.
            AttentionShape { window: 8, positions: 64, ..prompt(64, 60) },
            AttentionShape { window: 5, positions: 50, ..prompt(33, 100) },
        ];
        for shape in shapes {
            let len = shape.tokens * shape.heads * head_size;
            // Under every schedule, and on a device twice: the same bits.
            let run = |machine: &M, launch: Launch<'_, M>| {
                let found = machine::counted(machine, len, 32, |queue, out| launch(queue, out)).0;
                let nothing = shape.start >= shape.positions + shape.window;
                assert!(!nothing || found.iter().all(|x| x.to_bits() == 0), "a row that sees nothing is +0");
                found
            };
            check(machine, wgmma, shape, run);
        }
    }
}
