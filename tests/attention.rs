//! The launchers of attention: against f64, and what they refuse.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;

use gpu::attention::{AttnNaive, FaPrefillF16kv, FaPrefillF16kvShared, FaPrefillF16kvWgmma};
use lanemap::cuda::Queue as _;
use lanemap::cuda::ops::{self, AttentionShape, PREFILL_HEAD_SIZES, Prefill};
use lanemap::experiment::{PARITY, Problem};
use machine::{Guarded, Machine, assert_close, assert_refused, on_both, say};

on_both! {
    every_head_size_is_within_parity,
    windows_caps_and_groups_are_passed_on,
    arguments_outside_the_contract_are_refused,
}

const SEED: u64 = 11;

/// What a launcher makes of a problem, against f64.
fn check<M: Machine>(machine: &M, problem: &Problem) -> f64 {
    let query = Guarded::input(machine, "query", &problem.query, 16);
    let keys = Guarded::input(machine, "keys", &problem.keys, 16);
    let values = Guarded::input(machine, "values", &problem.values, 16);
    let found = machine::counted(machine, problem.query.len(), 32, |queue, out| {
        ops::attention(queue, out, query.view(), [keys.view(), values.view()], &problem.shape)
    })
    .0;
    let expected: Vec<f64> = (0..problem.shape.tokens).flat_map(|token| problem.reference(token)).collect();
    assert_close(&format!("{:?}, seed {SEED}", problem.shape), &found, &expected, |_| PARITY)
}

fn every_head_size_is_within_parity<M: Machine>(machine: &M) {
    let mut worst = 0.0_f64;
    for head_size in PREFILL_HEAD_SIZES.into_iter().chain([48]) {
        let shapes = [(1, 0), (33, 37), (65, 0)];
        for (tokens, start) in machine.cases(&shapes, &[(129, 700)]) {
            let shape = AttentionShape::prompt(tokens, start, [4, 2, head_size]);
            worst = worst.max(check(machine, &Problem::random(shape, SEED)));
        }
    }
    say(&format!("attention on the {}: worst error {worst:.2e}", M::NAME));
}

fn windows_caps_and_groups_are_passed_on<M: Machine>(machine: &M) {
    let prompt = AttentionShape::prompt(70, 5, [6, 2, 64]);
    let shapes = [
        AttentionShape { window: 9, ..prompt },
        AttentionShape { softcap: 3.0, scale: 0.5, ..prompt },
        AttentionShape { causal: false, positions: 50, ..prompt },
        AttentionShape { window: 7, positions: 40, ..prompt },
        AttentionShape { positions: 0, ..prompt },
    ];
    for shape in shapes {
        check(machine, &Problem::random(shape, SEED));
    }
    let nothing = Problem::random(AttentionShape { tokens: 0, ..prompt }, SEED);
    let inputs = [&nothing.query, &nothing.keys, &nothing.values].map(|x| machine.input("input", x).unwrap());
    let mut none = machine.output("none", 0).unwrap();
    let cache = [inputs[1].view(), inputs[2].view()];
    ops::attention(machine, none.view_mut(), inputs[0].view(), cache, &nothing.shape).unwrap();
}

fn arguments_outside_the_contract_are_refused<M: Machine>(machine: &M) {
    refused_by::<FaPrefillF16kv<64>, M>(machine, "fa_prefill_f16kv_hd64");
    refused_by::<FaPrefillF16kvShared<64>, M>(machine, "fa_prefill_f16kv_shared_hd64");
    refused_by::<FaPrefillF16kvWgmma<64, 128, 32, 64>, M>(machine, "fa_prefill_f16kv_wgmma_hd64");
    refused_by::<AttnNaive, M>(machine, "attn_naive");

    let other = AttentionShape::prompt(1, 0, [1, 1, 32]);
    let query = machine.input("query", &Problem::random(other, SEED).query).unwrap();
    let mut out = machine.output("out", 32).unwrap();
    let cache = [query.view(), query.view()];
    let error = ops::prefill::<FaPrefillF16kv<64>>(machine, out.view_mut(), query.view(), cache, &other);
    assert_refused(error, "fa_prefill_f16kv_hd64: the head size is 32, the kernel's is 64");
}

fn refused_by<K: Prefill, M: Machine>(machine: &M, name: &str) {
    let shape = AttentionShape::prompt(3, 2, [4, 2, 64]);
    let problem = Problem::random(shape, SEED);
    // An element more than the shape has, so that a view can begin one later.
    let more = |elements: &[half::f16]| [elements, &[half::f16::ZERO]].concat();
    let query = machine.input("query", &more(&problem.query)).unwrap();
    let keys = machine.input("keys", &more(&problem.keys)).unwrap();
    let values = machine.input("values", &more(&problem.values)).unwrap();
    let (rows, cached) = (problem.query.len(), problem.keys.len());
    let mut out = machine.output("out", rows + 4).unwrap();
    let address = out.view_mut().start().address() + 16;
    let mut run = |from: [usize; 4], change: &dyn Fn(&mut AttentionShape)| {
        let mut shape = shape;
        change(&mut shape);
        let [o, q, k, v] = from;
        let cache = [keys.slice(k..cached + k), values.slice(v..cached + v)];
        ops::prefill::<K>(machine, out.slice_mut(o..rows + o), query.slice(q..rows + q), cache, &shape)
    };
    let mut refused = |from: [usize; 4], change: &dyn Fn(&mut AttentionShape), what: &str| {
        assert_refused(run(from, change), &format!("{name}: {what}"));
    };
    let aligned = [0; 4];
    refused(aligned, &|s| s.tokens = 4, "out has 768 elements, the shape has 1024");
    refused(aligned, &|s| s.positions = 6, "keys has 640 elements, the shape has 768");
    refused(aligned, &|s| s.kv_heads = 3, "4 heads are no multiple of 3 KV heads");
    refused(aligned, &|s| s.kv_heads = 0, "4 heads are no multiple of 0 KV heads");
    refused(aligned, &|s| s.heads = 0, "0 heads are no multiple of 2 KV heads");
    let most = "2147483647";
    refused(aligned, &|s| s.window = 1 << 31, &format!("the window is 2147483648, the most is {most}"));
    refused(aligned, &|s| s.positions = 1 << 31, &format!("positions is 2147483648, the most is {most}"));
    refused(aligned, &|s| s.start = (1 << 31) - 3, "the start is 2147483645, the most is 2147483644");
    refused(aligned, &|s| s.tokens = 1 << 26, "query of 67108864 × 4 × 64 elements, the most are 2^32 - 1");
    for (scale, written) in [(0.0, "0"), (-1.0, "-1"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        refused(aligned, &|s| s.scale = scale, &format!("the scale is {written}, not above 0"));
    }
    for (softcap, written) in [(-2.0, "-2"), (f32::NAN, "NaN")] {
        refused(aligned, &|s| s.softcap = softcap, &format!("the softcap is {written}, below 0"));
    }
    refused(
        aligned,
        &|s| (s.scale, s.softcap) = (1e-30, 1e30),
        "the scale 0.000000000000000000000000000001 with the softcap 1000000000000000000000000000000 is out of an f32's range",
    );
    let text = |name: &str, address: u64, align: u32| {
        format!("{name} begins at {address:#x}, which is not a multiple of {align} bytes")
    };
    refused([4, 0, 0, 0], &|_| (), &text("out", address, 32));
    let later = |view: u64| view + 2;
    refused([0, 1, 0, 0], &|_| (), &text("query", later(query.view().start().address()), 16));
    refused([0, 0, 1, 0], &|_| (), &text("keys", later(keys.view().start().address()), 16));
    refused([0, 0, 0, 1], &|_| (), &text("values", later(values.view().start().address()), 16));
    assert!(out.read().unwrap().iter().all(|x| x.is_nan()), "nothing ran");
}

/// More tiles of rows than a grid has: there is no memory for it, so the heads are of one element.
#[test]
fn more_blocks_than_a_grid_has_are_refused() {
    let machine = &lanemap::cuda::Emulated::new();
    let shape = AttentionShape { positions: 0, ..AttentionShape::prompt(1, 0, [128 * 65_535 + 1, 1, 1]) };
    let elements = shape.heads;
    let query = machine.input("query", &vec![half::f16::ZERO; elements]).unwrap();
    let none = machine.input("none", &[]).unwrap();
    let mut out = machine.output("out", elements).unwrap();
    let result =
        ops::prefill::<AttnNaive>(machine, out.view_mut(), query.view(), [none.view(), none.view()], &shape);
    assert_refused(result, "attn_naive: 1 tokens of 8388481 heads are 1 by 65536 blocks, the most are 65535");
}
