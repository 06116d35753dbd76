//! What the kernels compute, against f64.

use std::eprintln;
use std::vec::Vec;

use super::*;
use crate::attention::{AttnNaive, FaPrefillF16kv, FaPrefillF16kvShared, FaPrefillF16kvWgmma};

/// Cases of all kinds, each with an edge: of a tile of rows, a tile of positions, or of what is seen.
fn cases(head_size: usize) -> Vec<Case> {
    let prompt = |tokens| Case::prompt(head_size, tokens);
    let mut cases = std::vec![
        // A row more than a tile, and the same rows as a group of heads.
        Case { kv_heads: 1, group: 2, ..prompt(65) },
        // One row, as when it decodes, and one that sees a single position.
        Case { start: 70, positions: 71, ..prompt(1) },
        prompt(1),
        // A cache that was there before, and three heads to each of two.
        Case { start: 37, positions: 70, kv_heads: 2, group: 3, ..prompt(33) },
        // More positions than the rows come to, and fewer.
        Case { start: 3, positions: 90, kv_heads: 1, ..prompt(16) },
        Case { start: 60, positions: 65, kv_heads: 1, ..prompt(17) },
        // Everyone sees everything.
        Case { causal: false, positions: 33, ..prompt(20) },
        // A window: within a tile, over its edge, and as long as the prompt.
        Case { window: 5, kv_heads: 1, ..prompt(64) },
        Case { window: 40, start: 50, positions: 115, kv_heads: 1, ..prompt(65) },
        Case { window: 1, kv_heads: 1, ..prompt(33) },
        // A window alone: what comes later is seen.
        Case { window: 3, causal: false, kv_heads: 1, ..prompt(40) },
        // A soft cap that bends scores.
        Case { softcap: 0.7, kv_heads: 1, ..prompt(65) },
        // Rows that see nothing: some of a tile, a whole tile that is full, and one that is not.
        Case { start: 60, positions: 64, window: 8, kv_heads: 1, ..prompt(64) },
        Case { start: 100, positions: 50, window: 5, kv_heads: 1, ..prompt(64) },
        Case { start: 100, positions: 50, window: 5, kv_heads: 1, ..prompt(7) },
    ];
    match head_size {
        // Several tiles each way.
        128 => cases.extend([
            Case { start: 37, positions: 166, kv_heads: 1, group: 2, ..prompt(129) },
            // Of 128 positions too, and no row that sees few: causal, in a window, and with a soft cap.
            Case { start: 200, positions: 461, kv_heads: 1, ..prompt(261) },
            Case { start: 300, positions: 500, window: 150, kv_heads: 1, ..prompt(190) },
            Case { start: 400, positions: 431, softcap: 0.7, kv_heads: 1, ..prompt(30) },
        ]),
        20 | 64 => {}
        // The edges are the same ones.
        _ => cases.truncate(4),
    }
    cases
}

/// A kernel computes attention, to within `bound` in every element; and an empty problem is none.
fn computes<K>(head_size: usize, bound: f64, kernel: fn(Attention) -> K)
where
    K: for<'b> Kernel<Lane<'b>>,
{
    let mut worst = 0.0_f64;
    for (seed, case) in (0..).zip(cases(head_size)) {
        let inputs = case.inputs(INPUTS);
        let (got, _) = play(&case, &inputs, seed, kernel);
        let want = case.attention(&inputs);
        assert_eq!(got.len(), want.len());
        let sees = |token| (0..case.positions).any(|position| case.sees(token, position));
        assert_eq!(want.iter().any(|x| x.abs() > 0.01), (0..case.tokens).any(sees), "{case:?} is trivial");
        for (i, (&got, want)) in got.iter().zip(want).enumerate() {
            let error = (f64::from(got) - want).abs();
            assert!(
                error <= bound,
                "{} of {case:?}, inputs {INPUTS:#x}: element {i} is {got}, not {want}",
                K::NAME
            );
            worst = worst.max(error);
        }
    }
    eprintln!("{}: at most {worst:.1e} from f64, inputs {INPUTS:#x}", K::NAME);
}

/// For f16 of -1 to 1.
const BOUND: f64 = 1e-4;

#[test]
fn fa_prefill_f16kv_computes_attention() {
    computes(128, BOUND, FaPrefillF16kv::<128>);
    computes(64, BOUND, FaPrefillF16kv::<64>);
    computes(80, BOUND, FaPrefillF16kv::<80>);
    computes(96, BOUND, FaPrefillF16kv::<96>);
    computes(256, BOUND, FaPrefillF16kv::<256>);
}

#[test]
fn fa_prefill_f16kv_computes_attention_with_other_tiles() {
    computes(128, BOUND, FaPrefillF16kv::<128, 64, 16>);
    computes(128, BOUND, FaPrefillF16kv::<128, 64, 64>);
    computes(128, BOUND, FaPrefillF16kv::<128, 128, 32>);
    computes(128, BOUND, FaPrefillF16kv::<128, 48, 32, 2, 1>);
    computes(128, BOUND, FaPrefillF16kv::<128, 64, 32, 2>);
}

#[test]
fn fa_prefill_f16kv_shared_computes_attention() {
    computes(128, BOUND, FaPrefillF16kvShared::<128>);
    computes(128, BOUND, FaPrefillF16kvShared::<128, 64, 8>);
    computes(128, BOUND, FaPrefillF16kvShared::<128, 32, 8>);
    computes(64, BOUND, FaPrefillF16kvShared::<64>);
    computes(80, BOUND, FaPrefillF16kvShared::<80>);
    computes(96, BOUND, FaPrefillF16kvShared::<96>);
    computes(256, BOUND, FaPrefillF16kvShared::<256, 32, 8>);
}

#[test]
fn fa_prefill_f16kv_wgmma_computes_attention() {
    computes(128, BOUND, |problem| FaPrefillF16kvWgmma::<128, 128, 64, 64> { problem, blocks: 3 });
    computes(64, BOUND, |problem| FaPrefillF16kvWgmma::<64, 128, 32, 64> { problem, blocks: 3 });
    computes(96, BOUND, |problem| FaPrefillF16kvWgmma::<96, 128, 48, 64> { problem, blocks: 3 });
    computes(256, BOUND, |problem| FaPrefillF16kvWgmma::<256, 64, 128, 32> { problem, blocks: 3 });
}

/// f32 throughout: what is left is the order of sums and the approximations of `ex2` and `rcp`.
#[test]
fn attn_naive_computes_attention() {
    // No multiple of anything.
    computes(20, 2e-6, |problem| AttnNaive { problem, head_size: 20 });
}

/// Rows of one problem in two passes, cut after so many, and with other rows beside their own, have the same bits.
fn same_bits_however_cut<K>(whole: Case, cuts: &[usize], kernel: fn(Attention) -> K)
where
    K: for<'b> Kernel<Lane<'b>>,
{
    let inputs = whole.inputs(INPUTS);
    let (all, _) = play(&whole, &inputs, 0, kernel);
    for &cut in cuts {
        let rest = Case { tokens: whole.tokens - cut, start: whole.start + cut, ..whole };
        let from = cut * whole.head_size * whole.kv_heads * whole.group;
        let (query, keys, values) =
            (inputs.query[from..].to_vec(), inputs.keys.clone(), inputs.values.clone());
        let (part, _) = play(&rest, &Inputs { query, keys, values }, 0, kernel);
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(&part) == bits(&all[from..]), "{}: {whole:?} cut at {cut}, inputs {INPUTS:#x}", K::NAME);
    }
}

#[test]
fn bits_do_not_depend_on_how_a_prompt_is_cut() {
    fn check<K: for<'b> Kernel<Lane<'b>>>(kernel: fn(Attention) -> K) {
        let whole = Case { kv_heads: 1, ..Case::prompt(64, 100) };
        same_bits_however_cut(whole, &[1, 40, 64, 90], kernel);
    }
    check(FaPrefillF16kv::<64>);
    check(FaPrefillF16kvShared::<64>);
    check(|problem| FaPrefillF16kvWgmma::<64, 128, 32, 64> { problem, blocks: 1 });
}

/// The kernel's two ways through the tiles: rows over several of them, which as a whole are taken tile by tile
/// because of the first 24, and, cut behind these, with the powers of one tile beside the product of the other.
#[test]
fn bits_of_fa_prefill_f16kv_wgmma_do_not_depend_on_how_many_its_neighbours_see() {
    fn check<K: for<'b> Kernel<Lane<'b>>>(head_size: usize, kernel: fn(Attention) -> K) {
        let whole = Case { start: 40, positions: 340, kv_heads: 1, group: 1, ..Case::prompt(head_size, 300) };
        same_bits_however_cut(whole, &[41, 100, 129], kernel);
    }
    check(64, |problem| FaPrefillF16kvWgmma::<64, 128, 32, 64> { problem, blocks: 2 });
    check(256, |problem| FaPrefillF16kvWgmma::<256, 64, 128, 32> { problem, blocks: 2 });
}

#[test]
fn an_empty_problem_has_no_blocks() {
    fn blocks<K: Contract>(case: Case, kernel: fn(Attention) -> K) -> u64 {
        let (_, problem) = prepare(&case, &case.inputs(INPUTS));
        kernel(problem).launch().grid.count()
    }
    for case in [Case::prompt(128, 0), Case { kv_heads: 0, ..Case::prompt(128, 3) }] {
        assert_eq!(blocks(case, FaPrefillF16kv::<128>), 0);
        assert_eq!(blocks(case, FaPrefillF16kvShared::<128>), 0);
        assert_eq!(blocks(case, |problem| FaPrefillF16kvWgmma::<128, 128, 64, 64> { problem, blocks: 3 }), 0);
        assert_eq!(blocks(case, |problem| AttnNaive { problem, head_size: 128 }), 0);
    }
}
