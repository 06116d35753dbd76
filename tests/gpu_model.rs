//! Whole tiny models on the GPU's kernels, held against the reference in `support/reference.rs`: on the
//! emulator always, on a device where there is one.
//!
//! Bounds. The reference is run with the roundings that the kernels make by contract: inputs, weights and
//! queries to f16, or with q8 rows inputs to pairs of 8-bit quants. What they cost it the kernels may lose 1.2 times over in all rows together and twice in a single logit, for the reasons that
//! `decoder.rs` gives, beside what f32 costs ([`F32_LOGIT`], [`F32_ALL`]).

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "support/machine.rs"]
mod machine;
mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use gpu::quant::Format;
use lanemap::cuda::backend::{ActivationKind, GpuBackend, GpuOptions};
use lanemap::cuda::{Emulated, ModelQueue, Stream};
use lanemap::session::{BackendError, Session};
use machine::{Machine, has_wgmma, on_both};
use support::error::Error;
use support::loaded::{Loaded, bits};
use support::reference::{self, Rounding};
use support::tiny::{Spec, Tiny, random_tokens};

/// The largest error besides those of the roundings, in units of a row's largest logit.
const F32_LOGIT: f64 = 1e-3;
/// The same of all logits, as a root mean square, relative to the logits'.
const F32_ALL: f64 = 2e-4;
/// Positions of a session.
const CONTEXT: usize = 160;

/// A machine that gives queues of its own.
trait Queues: Machine + ModelQueue {
    fn fresh(&self) -> Self;
}

impl Queues for Emulated {
    fn fresh(&self) -> Self {
        Self::new()
    }
}

impl Queues for Stream {
    fn fresh(&self) -> Self {
        self.device().stream().unwrap()
    }
}

on_both!(
    plain_models_of_each_architecture,
    head_sizes_formats_and_options,
    the_same_bits_however_a_prompt_is_cut,
    the_same_bits_whatever_stands_beside_a_sequence,
    greedy_steps_choose_the_largest_logit,
    the_number_of_sequences_decides_what_steps_read,
    steps_may_have_matrices_unpacked,
);

fn session<M: Queues + 'static>(
    machine: &M,
    loaded: &Loaded,
    kind: ActivationKind,
    sequences: usize,
) -> Session {
    session_of(machine, loaded, kind, CONTEXT, sequences)
}

fn session_of<M: Queues + 'static>(
    machine: &M,
    loaded: &Loaded,
    kind: ActivationKind,
    context: usize,
    sequences: usize,
) -> Session {
    let options = match kind {
        // Steps have no wgmma: the emulator would play 128 rows for each.
        ActivationKind::F16Wgmma => GpuOptions::steady(kind, ActivationKind::F16),
        // Its kernels are for steps.
        ActivationKind::F16SplitK => GpuOptions::steady(ActivationKind::F16, kind),
        kind => GpuOptions::steady(kind, kind),
    };
    session_with(machine, loaded, options, context, sequences)
}

fn session_with<M: Queues + 'static>(
    machine: &M,
    loaded: &Loaded,
    options: GpuOptions,
    context: usize,
    sequences: usize,
) -> Session {
    let model = Arc::clone(&loaded.model);
    let backend = GpuBackend::new(machine.fresh(), model, options, &mut |_, _| ()).unwrap();
    Session::with_sequences(Box::new(backend), context, sequences).unwrap()
}

fn prefill(session: &mut Session, sequence: usize, tokens: &[u32], batch: usize) -> Vec<f32> {
    let go = &mut |_: usize, _: usize| ControlFlow::Continue(());
    session.prefill_sequence(sequence, tokens, batch, go).unwrap().to_vec()
}

/// The kinds that the machine has.
fn kinds(machine: &impl Machine) -> Vec<ActivationKind> {
    let mut kinds = vec![ActivationKind::F16, ActivationKind::Q8];
    if has_wgmma(machine, "ActivationKind::F16Wgmma") {
        kinds.extend([ActivationKind::F16Wgmma, ActivationKind::F16SplitK]);
    }
    kinds
}

/// A model's prompts and steps with both kinds of activations against the reference.
fn check<M: Queues + 'static>(machine: &M, what: &str, spec: Spec, len: usize) {
    let tiny = Tiny::new(spec);
    let loaded = Loaded::new(&tiny);
    let tokens = random_tokens(spec.vocab, len, spec.seed + 1);
    let expected = reference::logits(&tiny, &tokens, Rounding::None);
    let cost = |rounding| Error::of(&reference::logits(&tiny, &tokens, rounding), &expected);
    let (half, pairs, scales) = (cost(Rounding::Half), cost(Rounding::Pairs), cost(Rounding::Scales));
    assert!(half.all < 2e-2 && pairs.all < 2e-2, "{spec:?} is too sensitive to test anything");
    // The emulator has no time for every step: some at the beginning show the kernels that prompts have not.
    let steps_len = machine.cases(&[len.min(7)], &[len]).pop().unwrap();
    for kind in kinds(machine) {
        let mut session = session(machine, &loaded, kind, 1);
        let prompt: Vec<Vec<f32>> =
            session.prefill_each(&tokens).unwrap().chunks_exact(spec.vocab).map(<[f32]>::to_vec).collect();
        session.rewind(0);
        let steps: Vec<Vec<f32>> =
            tokens[..steps_len].iter().map(|&token| session.decode(token).unwrap().to_vec()).collect();
        for (rows, name) in [(prompt, "prompt"), (steps, "steps")] {
            let cost = match kind {
                ActivationKind::Q8 => &pairs,
                ActivationKind::F16SplitK if name == "steps" => &scales,
                _ => &half,
            };
            let (logit, all) = (2.0 * cost.logit, 1.2 * cost.all);
            let error = Error::of(&rows, &expected[..rows.len()]);
            let parts = [(error.logit, F32_LOGIT + logit), (error.all, F32_ALL + all)];
            for ((error, allowed), part) in parts.into_iter().zip(["a logit", "all rows"]) {
                // Written so that a NaN fails.
                assert!(
                    error <= allowed,
                    "{}: {what}: {name}, {kind:?}: error of {part} {error:.1e}, allowed {allowed:.1e}",
                    M::NAME
                );
            }
            println!("{}: {what}: {name}, {kind:?}: error {:.1e}", M::NAME, error.all);
        }
    }
}

fn plain_models_of_each_architecture<M: Queues + 'static>(machine: &M) {
    check(machine, "llama", Spec::LLAMA, 21);
    check(machine, "qwen2", Spec::QWEN2, 13);
    check(machine, "qwen3", Spec::QWEN3, 13);
    check(machine, "gemma3", Spec { layers: 6, ..Spec::GEMMA3 }, 13);
}

/// Of the shapes that attention has kernels for, of those that it has none for, and every format.
fn head_sizes_formats_and_options<M: Queues + 'static>(machine: &M) {
    let wide = Spec { width: 256, feed_forward: 256, ..Spec::LLAMA };
    let k_quants = &[Format::Q4_K, Format::Q6_K, Format::Q5_K, Format::Q3_K, Format::Q2_K][..];
    check(machine, "q4_k and others", Spec { formats: k_quants, ..wide }, 19);
    let small = &[Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::IQ4_NL][..];
    check(machine, "q4_0 and others", Spec { formats: small, bias: true, ..Spec::LLAMA }, 19);
    let floats = &[Format::F16, Format::F32, Format::BF16, Format::Q8_0][..];
    check(machine, "floats", Spec { formats: floats, ..Spec::QWEN2 }, 19);
    for (heads, kv_heads, head_dim) in
        [(6, 2, 80), (3, 1, 96), (4, 4, 128), (2, 1, 256), (2, 1, 32), (17, 1, 64)]
    {
        let what = format!("{heads} heads over {kv_heads} of {head_dim}");
        check(machine, &what, Spec { layers: 1, heads, kv_heads, head_dim, ..Spec::QWEN3 }, 11);
    }
    let capped = Spec { attention_softcap: Some(20.0), logit_softcap: Some(15.0), ..Spec::LLAMA };
    check(machine, "caps", capped, 11);
}

/// What the tests of bits run.
const WIDE: [Spec; 2] = [
    Spec {
        width: 256,
        feed_forward: 512,
        heads: 6,
        vocab: 1021,
        formats: &[Format::Q4_K, Format::Q6_K, Format::Q8_0],
        ..Spec::LLAMA
    },
    Spec { layers: 6, heads: 4, head_dim: 96, window: Some(33), ..Spec::GEMMA3 },
];

fn the_same_bits_however_a_prompt_is_cut<M: Queues + 'static>(machine: &M) {
    for (spec, kind) in WIDE.into_iter().cycle().zip(kinds(machine)) {
        let loaded = Loaded::new(&Tiny::new(spec));
        let len = machine.cases(&[40], &[71]).pop().unwrap();
        let tokens = random_tokens(spec.vocab, len, 8);
        let mut session = session(machine, &loaded, kind, 1);
        let whole = bits(&prefill(&mut session, 0, &tokens, 512));
        let after = bits(session.decode(5).unwrap());
        // A row alone is 128 rows of wgmma, which the emulator plays slowly.
        let most = if kind == ActivationKind::F16Wgmma { 1 } else { 2 };
        for batch in machine.cases(&[33, 1][..most], &[1, 2, 16, 17, 32, 64, 70]) {
            session.rewind(0);
            let cut = bits(&prefill(&mut session, 0, &tokens, batch));
            assert_eq!(cut, whole, "{}: {kind:?}: chunks of {batch}", spec.arch);
            assert_eq!(bits(session.decode(5).unwrap()), after, "{}: the step behind", spec.arch);
        }
        session.rewind(0);
        let rows = session.prefill_each(&tokens).unwrap();
        assert_eq!(bits(&rows[(len - 1) * spec.vocab..]), whole, "{}: {kind:?}: each row", spec.arch);
    }
}

fn the_same_bits_whatever_stands_beside_a_sequence<M: Queues + 'static>(machine: &M) {
    for (spec, kind) in WIDE.into_iter().rev().cycle().zip(kinds(machine)) {
        let loaded = Loaded::new(&Tiny::new(spec));
        let lens = machine.cases(&[9, 1, 20], &[64; 61]);
        let mut together = session(machine, &loaded, kind, lens.len());
        let mut alone = session(machine, &loaded, kind, 1);
        let prompt = |sequence: usize| random_tokens(spec.vocab, lens[sequence], 70 + sequence as u64);
        for sequence in 0..lens.len() {
            prefill(&mut together, sequence, &prompt(sequence), 512);
        }
        for step in 0..3 {
            // In another order each time.
            let order: Vec<_> = (0..lens.len()).map(|at| (at + step) % lens.len()).collect();
            let tokens: Vec<_> = order.iter().map(|&at| (at, (3 * at + 5 * step) as u32 % 61)).collect();
            let rows = together.decode_batch(&tokens).unwrap().to_vec();
            for (row, &(sequence, _)) in rows.chunks_exact(spec.vocab).zip(&tokens) {
                if sequence >= 3 && sequence + 1 < lens.len() {
                    continue;
                }
                alone.rewind(0);
                prefill(&mut alone, 0, &prompt(sequence), 512);
                let mut expected = Vec::new();
                for earlier in 0..=step {
                    let token = (3 * sequence + 5 * earlier) as u32 % 61;
                    expected = alone.decode(token).unwrap().to_vec();
                }
                assert_eq!(bits(row), bits(&expected), "{}: {kind:?}: sequence {sequence}", spec.arch);
            }
        }
    }
}

fn greedy_steps_choose_the_largest_logit<M: Queues + 'static>(machine: &M) {
    let spec = WIDE[0];
    let loaded = Loaded::new(&Tiny::new(spec));
    let mut session = session(machine, &loaded, ActivationKind::Q8, 2);
    let prompt = random_tokens(spec.vocab, 12, 3);
    let mut expected = Vec::new();
    prefill(&mut session, 0, &prompt, 512);
    prefill(&mut session, 1, &prompt[..5], 512);
    let mut tokens = [(0, 1), (1, 2)];
    for _ in 0..5 {
        let rows = session.decode_batch(&tokens).unwrap();
        let best = |row: &[f32]| {
            let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]).then(b.cmp(&a)));
            best.unwrap() as u32
        };
        let [a, b] = [best(&rows[..spec.vocab]), best(&rows[spec.vocab..])];
        expected.push([a, b]);
        tokens = [(0, a), (1, b)];
    }
    session.rewind(0);
    prefill(&mut session, 0, &prompt, 512);
    prefill(&mut session, 1, &prompt[..5], 512);
    let mut tokens = [(0, 1), (1, 2)];
    for expected in expected {
        let best = session.decode_batch_greedy(&tokens).unwrap();
        assert_eq!(best, expected);
        tokens = [(0, best[0]), (1, best[1])];
    }
}

/// Sessions for one and two sequences read one kind, those for more the other, also after they have been resized.
fn the_number_of_sequences_decides_what_steps_read<M: Queues + 'static>(machine: &M) {
    if !has_wgmma(machine, "ActivationKind::F16SplitK") {
        return;
    }
    let spec = Spec { layers: 1, ..WIDE[0] };
    let loaded = Loaded::new(&Tiny::new(spec));
    let prompt = random_tokens(spec.vocab, 5, 9);
    let (few, many) = (ActivationKind::Q8, ActivationKind::F16SplitK);
    let behind_prompt = |session: &mut Session| {
        prefill(session, 0, &prompt, 512);
        bits(session.decode_batch(&[(0, 3)]).unwrap())
    };
    let prompts = ActivationKind::F16;
    let steady = |step| {
        behind_prompt(&mut session_with(machine, &loaded, GpuOptions::steady(prompts, step), CONTEXT, 1))
    };
    let expected = [steady(few), steady(many)];
    assert_ne!(expected[0], expected[1], "the kinds cannot be told apart");

    let options = GpuOptions { prompt: prompts, step: few, step_of_many: many };
    let mut resized = session_with(machine, &loaded, options, CONTEXT, 3);
    for sequences in [3, 1, 2, 3] {
        if resized.sequences() != sequences {
            resized.resize(sequences).unwrap();
        }
        let found = behind_prompt(&mut resized);
        assert!(found == expected[usize::from(sequences > 2)], "{sequences} sequences");
    }
}

/// Positions of a long context.
const LONG: usize = 32_768;
/// A tiny model with the attention of a 7B one (qwen2): 28 layers of 28 heads over 4 of 128.
const SEVEN: Spec = Spec { layers: 28, heads: 28, kv_heads: 4, head_dim: 128, ..Spec::QWEN2 };
/// With so many sequences of [`LONG`] positions the cache of the last one begins past 2^31 elements.
const SEQUENCES: usize = 6;

/// A full context of 32,768 positions, alone, and as the first and as the last of some sequences: the same
/// bits, in the prompt and in steps. Before the last one's cache are more than 2^31 elements of keys and as
/// many of values. An offset without its upper bits would be one in the first one's cache, in another layer.
/// Steps through the products of prompts, behind prompts of either kind: the library has them, the command line not.
fn steps_may_have_matrices_unpacked<M: Queues + 'static>(machine: &M) {
    if !has_wgmma(machine, "steps_may_have_matrices_unpacked") {
        return;
    }
    let spec = Spec { layers: 1, ..Spec::LLAMA };
    let tiny = Tiny::new(spec);
    let loaded = Loaded::new(&tiny);
    let tokens = random_tokens(spec.vocab, 3, spec.seed + 5);
    let expected = reference::logits(&tiny, &tokens, Rounding::None);
    let cost = Error::of(&reference::logits(&tiny, &tokens, Rounding::Half), &expected);
    for prompt in [ActivationKind::F16, ActivationKind::F16Wgmma] {
        let options = GpuOptions::steady(prompt, ActivationKind::F16Wgmma);
        let mut session = session_with(machine, &loaded, options, CONTEXT, 1);
        prefill(&mut session, 0, &tokens[..2], 2);
        let found = session.decode(tokens[2]).unwrap().to_vec();
        let error = Error::of(&[found], &expected[2..]);
        let allowed = F32_LOGIT + 2.0 * cost.logit;
        assert!(
            error.logit <= allowed,
            "{prompt:?}: a logit off by {:.1e}, allowed {allowed:.1e}",
            error.logit
        );
    }
}

#[test]
fn the_same_bits_past_two_to_the_31_elements_of_the_cache() {
    let name = "gpu_model::the_same_bits_past_two_to_the_31_elements_of_the_cache";
    let Some(stream) = machine::stream(name) else { return };
    let loaded = Loaded::new(&Tiny::new(SEVEN));
    let config = loaded.model.config();
    let elements = (config.layers * LONG * config.kv_width()) as u64;
    let (last, before) = (SEQUENCES - 1, (SEQUENCES as u64 - 1) * elements);
    assert!(before > 1 << 31, "the last sequence begins at element {before}");
    // Keys and values of f16, and a gigabyte for what else there is.
    let (needed, free) = (4 * (before + elements) + (1 << 30), stream.free_memory().unwrap().unwrap());
    if free < needed {
        machine::say(&format!("NO DEVICE: {name}: needs {needed} bytes of memory, {free} are free"));
        return;
    }

    const STEPS: usize = 5;
    let tokens = random_tokens(SEVEN.vocab, LONG, SEVEN.seed + 1);
    let (prompt, steps) = tokens.split_at(LONG - STEPS);
    let mut alone = session_of(&stream, &loaded, ActivationKind::Q8, LONG, 1);
    let expected = bits(&prefill(&mut alone, 0, prompt, 2048));
    let expected_steps: Vec<_> = steps.iter().map(|&token| bits(alone.decode(token).unwrap())).collect();
    drop(alone);
    assert!(expected_steps.iter().all(|step| *step != expected), "the logits are always the same");

    let mut together = session_of(&stream, &loaded, ActivationKind::Q8, LONG, SEQUENCES);
    for sequence in 0..SEQUENCES {
        let is_compared = [0, last].contains(&sequence);
        let prompt = if is_compared { prompt } else { &prompt[sequence..300] };
        let found = bits(&prefill(&mut together, sequence, prompt, 2048));
        assert_eq!(found == expected, is_compared, "the prompt of sequence {sequence}");
    }
    for (step, (&token, expected)) in steps.iter().zip(&expected_steps).enumerate() {
        let rows = together.decode_batch(&[(last, token), (0, token)]).unwrap();
        for (row, sequence) in rows.chunks_exact(SEVEN.vocab).zip([last, 0]) {
            assert_eq!(bits(row), *expected, "step {step} of sequence {sequence}");
        }
    }
}

/// What no kernel is made for is said before anything is uploaded.
#[test]
fn a_model_without_kernels_is_refused_in_words() {
    let loaded = Loaded::new(&Tiny::new(Spec { head_dim: 264, heads: 2, kv_heads: 1, ..Spec::QWEN3 }));
    let made =
        GpuBackend::new(Emulated::new(), Arc::clone(&loaded.model), GpuOptions::default(), &mut |_, _| {
            unreachable!("nothing is uploaded")
        });
    let Err(error @ BackendError::Unsupported { .. }) = made else { panic!("it was taken") };
    let text = error.to_string();
    assert!(text.contains("heads of 264") && text.contains("--device cpu"), "{text}");
}
