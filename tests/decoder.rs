//! The decoder on tiny synthetic models, held against the reference in `support/reference.rs`.
//!
//! Bounds. *Exact mode*: its weights and sums are the reference's and its intermediate values are f32,
//! off by 2⁻²⁴ each, which alone gives 3e-7. But now and then such an error lifts a key or a value over
//! the edge between two f16 numbers, and that element then moves by up to 2⁻¹⁰ of itself, a score by up
//! to 2⁻¹⁰ · |q·k| / √head_dim for that element. The tiny models' queries and keys have a deviation of
//! 1.5: 3e-4 in a score where both are at their deviation, 5e-3 at the very most (both at four times
//! theirs), and at most a quarter of it in a weight of the softmax. Hence [`EXACT_LOGIT`] for the worst
//! logit and [`EXACT_ALL`] for all of them together. A deep model amplifies such a step: the reference is
//! run a second time with errors of the size of f32, and twice what they cost it is allowed in addition.
//!
//! *8-bit mode*: the reference is run with its activations rounded in the same way. What that costs it,
//! the library may lose 1.2 times over in all rows together, because a value next to the edge of a
//! rounding step falls to either side; and no row more than twice what the worst row loses.
//!
//! *f16 rounding*: the reference rounds in the same places. Were it to other numbers, the two would be apart by √2
//! of what the rounding costs either of them, and by half of it where a fourth of its squares came from a place that
//! is left out. In one layer a fourth of it is allowed, for values next to an edge: there are more of them the deeper
//! a model is (Gemma 3: 0.06 of the cost after one layer, 0.17 after two, 0.60 after seven). Other draws are other
//! roundings of the same size: they lose between half and twice as much.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use gpu::quant::Format;
use lanemap::cpu::{Arithmetic, CpuOptions};
use support::error::Error;
use support::loaded::{Loaded, MODES, bits, decode, prefill};
use support::reference::{self, Rounding};
use support::tiny::{Spec, Stretch, Tiny, random_tokens};

/// The exact mode's largest error, in units of a row's largest logit.
const EXACT_LOGIT: f64 = 5e-4;

/// The exact mode's error of all logits, as a root mean square, relative to the logits'.
const EXACT_ALL: f64 = 1e-4;

/// Prompt lengths around every tile and chunk.
const LENGTHS: [usize; 8] = [1, 31, 32, 33, 63, 64, 65, 97];

/// Query heads and key heads: the ratios 1, 2, 3, 5, 6, 7, 8 and 14.
const GROUPS: [(usize, usize); 8] = [(2, 2), (4, 2), (6, 2), (5, 1), (12, 2), (14, 2), (8, 1), (14, 1)];

/// One model in both modes: every position against the reference, and prompts evaluated at once against
/// the same tokens one by one.
fn check(what: &str, spec: Spec) {
    check_model(what, &Tiny::new(spec), 97);
}

fn check_model(what: &str, tiny: &Tiny, len: usize) {
    let loaded = Loaded::new(tiny);
    let tokens = random_tokens(tiny.spec.vocab, len, tiny.spec.seed + 1);
    let expected = Expected::new(tiny, &tokens);
    for exact in MODES {
        let mut session = loaded.session(exact, 2);
        let rows = decode(&mut session, &tokens);
        expected.hold(what, exact, &rows);
        for length in LENGTHS.into_iter().filter(|&length| length <= len) {
            session.rewind(0);
            let whole = prefill(&mut session, &tokens[..length], 512);
            assert_eq!(bits(&whole), bits(&rows[length - 1]), "{what}: exact {exact}: prompt of {length}");
        }
    }
}

/// The reference's logits, and what rounding costs them.
struct Expected {
    logits: Vec<Vec<f64>>,
    f32_cost: Error,
    eight_bit_cost: Error,
}

impl Expected {
    fn new(tiny: &Tiny, tokens: &[u32]) -> Self {
        let logits = reference::logits(tiny, tokens, Rounding::None);
        let cost = |rounding| Error::of(&reference::logits(tiny, tokens, rounding), &logits);
        let (f32_cost, eight_bit_cost) = (cost(Rounding::F32), cost(Rounding::EightBit));
        assert!(
            f32_cost.all < 1e-2 && eight_bit_cost.all < 0.15,
            "{:?} is too sensitive to test anything",
            tiny.spec
        );
        Self { logits, f32_cost, eight_bit_cost }
    }

    /// Holds the library's logits to the reference's.
    fn hold(&self, what: &str, exact: bool, rows: &[Vec<f32>]) {
        let error = Error::of(rows, &self.logits);
        let (cost, logit, all) = (&self.f32_cost, EXACT_LOGIT, EXACT_ALL);
        let allowed = if exact {
            Error { logit: logit + 2.0 * cost.logit, row: f64::INFINITY, all: all + 2.0 * cost.all }
        } else {
            // Where no matrix is quantized, the exact mode's error is what is left.
            let cost = &self.eight_bit_cost;
            Error { logit: f64::INFINITY, row: logit + 2.0 * cost.row, all: all + 1.2 * cost.all }
        };
        let parts = [(error.logit, allowed.logit), (error.row, allowed.row), (error.all, allowed.all)];
        for ((error, allowed), name) in parts.into_iter().zip(["a logit", "a row", "all rows"]) {
            // Written so that a NaN fails.
            assert!(
                error <= allowed,
                "{what}: exact {exact}: error of {name} {error:.1e}, allowed {allowed:.1e}"
            );
        }
        let used = parts.map(|(error, allowed)| error / allowed).into_iter().fold(0.0, f64::max);
        println!("{what}: exact {exact}: error {:.1e}, {used:.2} of what is allowed", error.all);
    }
}

#[test]
fn plain_models_of_each_architecture() {
    check("llama", Spec::LLAMA);
    check("qwen2", Spec::QWEN2);
    check("qwen3", Spec::QWEN3);
    check("gemma3", Spec::GEMMA3);
}

#[test]
fn f16_rounding_is_that_of_the_reference() {
    for spec in [Spec::LLAMA, Spec::QWEN2, Spec::QWEN3, Spec::GEMMA3] {
        let tiny = Tiny::new(Spec { layers: 1, ..spec });
        let loaded = Loaded::new(&tiny);
        let tokens = random_tokens(spec.vocab, 97, spec.seed + 1);
        let [plain, half] =
            [Rounding::None, Rounding::Half].map(|rounding| reference::logits(&tiny, &tokens, rounding));
        let cost = Error::of(&half, &plain);
        let run = |draw| {
            let options = CpuOptions { threads: 2, arithmetic: Arithmetic::Half { draw } };
            let mut session = loaded.with(options, 1);
            let rows = decode(&mut session, &tokens);
            session.rewind(0);
            let whole = prefill(&mut session, &tokens, 512);
            assert_eq!(bits(&whole), bits(&rows[96]), "{}: a prompt of 97", spec.arch);
            rows
        };
        let rows = run(0);
        let apart = Error::of(&rows, &half);
        println!("{}: {:.2e} apart, the rounding costs {:.2e}", spec.arch, apart.all, cost.all);
        assert!(cost.all > 1e-4, "{}: nothing is lost: {:.2e}", spec.arch, cost.all);
        assert!(apart.all <= cost.all / 4.0, "{}: {:.2e} of {:.2e}", spec.arch, apart.all, cost.all);
        for draw in 1..4 {
            let other = run(draw);
            let error = Error::of(&other, &plain).all / cost.all;
            println!("{}: draw {draw} loses {error:.2} times as much", spec.arch);
            assert!((0.5..=2.0).contains(&error), "{}: draw {draw} loses {error:.2} of it", spec.arch);
            let apart = Error::of(&other, &half).all / cost.all;
            assert!(apart > 0.7, "{}: draw {draw} is draw 0 again: {apart:.2}", spec.arch);
        }
    }
}

#[test]
fn head_sizes_and_group_ratios() {
    let sizes = [64, 80, 96, 128, 256].into_iter().cycle();
    let architectures = [Spec::LLAMA, Spec::QWEN2, Spec::QWEN3, Spec::GEMMA3].into_iter().cycle();
    for (((heads, kv_heads), head_dim), spec) in GROUPS.into_iter().zip(sizes).zip(architectures) {
        let what = format!("{}: {heads} heads over {kv_heads} of {head_dim}", spec.arch);
        check(&what, Spec { heads, kv_heads, head_dim, layers: spec.layers.min(6), ..spec });
    }
}

/// Values of KV head `j` are `j + 1` wherever the tokens look, and the output shows each query head's
/// value: which KV head a query head reads is then seen in the logits themselves.
#[test]
fn each_query_head_reads_its_own_kv_head() {
    for (heads, kv_heads) in GROUPS {
        let head_dim = 64;
        let spec = Spec { layers: 1, heads, kv_heads, head_dim, vocab: 32, width: 32, ..Spec::QWEN2 };
        let mut tiny = Tiny::new(spec);
        // The residual stream is what the attention adds to it, nothing else.
        tiny.edit("token_embd.weight", |values| values.iter_mut().for_each(|x| *x *= 1e-6));
        tiny.edit("blk.0.ffn_down.weight", |values| values.fill(0.0));
        tiny.edit("output_norm.weight", |values| values.fill(1.0));
        tiny.edit("output.weight", |values| identity(values, 32, |row| row));
        tiny.edit("blk.0.attn_v.weight", |values| values.fill(0.0));
        tiny.edit("blk.0.attn_v.bias", |values| {
            values.iter_mut().enumerate().for_each(|(i, x)| *x = (i / head_dim + 1) as f32);
        });
        // Element h of the residual stream is one element of query head h.
        tiny.edit("blk.0.attn_output.weight", |values| {
            values.fill(0.0);
            for head in 0..heads {
                values[head * heads * head_dim + head * head_dim + (7 * head) % head_dim] = 1.0;
            }
        });
        let loaded = Loaded::new(&tiny);
        for exact in MODES {
            let logits = prefill(&mut loaded.session(exact, 2), &random_tokens(32, 40, 3), 512);
            for head in 0..heads {
                let value = f64::from(logits[head] / logits[0]);
                let expected = (head / (heads / kv_heads) + 1) as f64;
                assert!(
                    (value - expected).abs() <= 1e-3,
                    "{heads} heads over {kv_heads}: head {head} reads {value}, expected {expected}"
                );
            }
        }
    }
}

/// Rows of `columns` with a one at `place(row)`, as far as there are such places.
fn identity(values: &mut [f32], columns: usize, place: impl Fn(usize) -> usize) {
    values.fill(0.0);
    for (row, values) in values.chunks_exact_mut(columns).enumerate() {
        values[place(row)] = 1.0;
    }
}

#[test]
fn odd_vocabularies() {
    for (vocab, spec) in [(1021, Spec::LLAMA), (1023, Spec::QWEN3), (1025, Spec::QWEN2)] {
        check(&format!("{} with {vocab} tokens", spec.arch), Spec { vocab, layers: 1, ..spec });
    }
    let formats = &[Format::Q6_K, Format::Q4_K];
    let spec = Spec { vocab: 1023, width: 256, formats, layers: 1, ..Spec::LLAMA };
    check("1023 tokens in super-blocks", spec);
}

/// Widths that no super-block divides, and rows longer than the piece that is unpacked at a time.
#[test]
fn widths_of_odd_multiples_of_a_block() {
    let formats = &[Format::Q8_0, Format::Q5_0, Format::Q4_0];
    let spec = Spec { width: 896, heads: 14, feed_forward: 1056, formats, layers: 1, ..Spec::QWEN2 };
    check_model("width 896", &Tiny::new(spec), 33);
    let spec =
        Spec { width: 288, feed_forward: 2336, heads: 3, kv_heads: 1, head_dim: 96, layers: 1, ..spec };
    check_model("width 288, 2336", &Tiny::new(spec), 33);
    // Rows of no whole number of eight, in formats without blocks.
    let formats = &[Format::F32, Format::F16, Format::BF16];
    let spec = Spec { width: 75, feed_forward: 131, vocab: 67, formats, ..Spec::QWEN3 };
    check_model("width 75", &Tiny::new(spec), 33);
}

#[test]
fn every_format() {
    const ONE: [[Format; 1]; 16] = {
        let mut one = [[Format::F32]; 16];
        let mut i = 0;
        while i < 16 {
            one[i] = [Format::ALL[i]];
            i += 1;
        }
        one
    };
    for formats in &ONE {
        let spec = Spec { width: 256, feed_forward: 512, formats, layers: 1, ..Spec::LLAMA };
        check_model(formats[0].name(), &Tiny::new(spec), 33);
    }
    let formats = &[Format::Q4_K, Format::F16, Format::Q6_K, Format::Q8_0, Format::F32, Format::IQ4_XS];
    let spec = Spec { width: 256, feed_forward: 512, formats, ..Spec::QWEN2 };
    check("mixed formats", spec);
}

#[test]
fn rotary_embeddings() {
    let yarn = Stretch::Yarn { factor: 4.0, original: 64 };
    for spec in [Spec::LLAMA, Spec::QWEN2] {
        let name = |what: &str| format!("{}: {what}", spec.arch);
        check(&name("a part of the head turns"), Spec { rope_dims: Some(24), ..spec });
        check(&name("linear"), Spec { stretch: Stretch::Linear { factor: 2.5 }, ..spec });
        check(&name("yarn"), Spec { stretch: yarn, rope_base: 10_000.0, ..spec });
        check(&name("yarn on a part"), Spec { stretch: yarn, rope_dims: Some(48), head_dim: 96, ..spec });
        check(&name("divisors"), Spec { rope_factors: true, rope_base: 500_000.0, ..spec });
        let all = Spec { rope_factors: true, rope_dims: Some(32), stretch: yarn, ..spec };
        check(&name("divisors, a part and yarn"), all);
    }
    // Only the layers that see everything are stretched.
    check("gemma3: linear", Spec { stretch: Stretch::Linear { factor: 8.0 }, ..Spec::GEMMA3 });
}

#[test]
fn sliding_windows() {
    for window in [1, 2, 31, 32, 33, 64, 65, 1000] {
        let spec = Spec { layers: 6, window: Some(window), ..Spec::GEMMA3 };
        check(&format!("window of {window}"), spec);
    }
    for pattern in [1, 2, 3, 7] {
        let spec = Spec { layers: 4, window: Some(7), pattern: Some(pattern), ..Spec::GEMMA3 };
        check(&format!("pattern of {pattern}"), spec);
    }
    check("no window", Spec { layers: 3, window: None, ..Spec::GEMMA3 });
    // Files of other architectures may carry the key; their layers see everything.
    check("a window of Mistral", Spec { window: Some(4), ..Spec::LLAMA });
}

#[test]
fn options() {
    check("soft-caps", Spec { attention_softcap: Some(1.5), logit_softcap: Some(2.0), ..Spec::GEMMA3 });
    check(
        "soft-caps of llama",
        Spec { attention_softcap: Some(0.7), logit_softcap: Some(1.0), ..Spec::LLAMA },
    );
    check("scale", Spec { attention_scale: Some(0.05), ..Spec::QWEN3 });
    check("tied", Spec { tied: true, ..Spec::LLAMA });
    check("untied", Spec { tied: false, ..Spec::GEMMA3 });
    check("biases of llama", Spec { bias: true, ..Spec::LLAMA });
    check("a large epsilon", Spec { epsilon: 0.5, ..Spec::QWEN3 });
    // The layer count of the 27B model, which divides its scores by its width per head.
    let spec = Spec { layers: 62, width: 32, feed_forward: 32, vocab: 33, window: Some(3), ..Spec::GEMMA3 };
    check_model("62 layers", &Tiny::new(spec), 33);
}

/// Qwen's rows of a pair stand half a head apart, Llama's side by side: the same model in both orders.
#[test]
fn a_model_in_both_rope_orders() {
    let spec = Spec { kv_heads: 1, ..Spec::QWEN2 };
    for rope_dims in [None, Some(32)] {
        let qwen = Tiny::new(Spec { rope_dims, ..spec });
        let mut llama = qwen.clone().renamed("llama");
        let (head, half) = (spec.head_dim, rope_dims.unwrap_or(spec.head_dim) / 2);
        let source = |row: usize| {
            let (first, i) = (row / head * head, row % head);
            if i < 2 * half { first + i / 2 + i % 2 * half } else { row }
        };
        for layer in 0..spec.layers {
            for role in ["attn_q", "attn_k"] {
                llama.permute_rows(&format!("blk.{layer}.{role}.weight"), source);
                llama.edit(&format!("blk.{layer}.{role}.bias"), |values| {
                    let before = values.to_vec();
                    values.iter_mut().enumerate().for_each(|(i, x)| *x = before[source(i)]);
                });
            }
        }
        let tokens = random_tokens(spec.vocab, 97, 11);
        let expected = Expected::new(&qwen, &tokens);
        for exact in MODES {
            let run = |tiny: &Tiny| decode(&mut Loaded::new(tiny).session(exact, 2), &tokens);
            let (as_llama, as_qwen) = (run(&llama), run(&qwen));
            expected.hold("as llama", exact, &as_llama);
            if exact {
                // Only the order within the sums of a score differs.
                for (a, b) in as_llama.iter().flatten().zip(as_qwen.iter().flatten()) {
                    assert!((a - b).abs() <= 1e-5, "rope dimensions {rope_dims:?}: {a} and {b}");
                }
            }
        }
    }
}

/// Gemma 3's norms have large weights and its residual stream leaves the range of f16.
#[test]
fn values_beyond_f16_stay_finite() {
    let mut tiny = Tiny::new(Spec { seed: 60, ..Spec::GEMMA3 });
    for name in tiny.names() {
        let role = name.rsplit_once('.').unwrap().0;
        if role.ends_with("_norm") && !role.ends_with("q_norm") && !role.ends_with("k_norm") {
            // The later layers add tens of thousands, so that the residual stream is no mere embedding.
            let late = role.contains("post")
                && !["blk.0.", "blk.1.", "blk.2."].iter().any(|at| role.starts_with(at));
            tiny.edit(&name, |values| values.fill(if late { 1e4 } else { 60.0 }));
        }
    }
    let residual = reference::largest_residual(&tiny, &random_tokens(tiny.spec.vocab, 97, 61));
    println!("the residual stream reaches {residual:.0}");
    assert!(residual > 9e4 && residual < 1e6);
    check_model("norms of 60", &tiny, 97);
}
