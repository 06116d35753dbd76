//! What holds on tiny models whatever their logits are: the same bits however a prompt is evaluated, no
//! NaN that is hidden, and a session that stands where its cache ends after a refusal or a failure.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use gpu::quant::Format;
use lanemap::cpu::{Arithmetic, CpuBackend, CpuOptions};
use lanemap::model::Config;
use lanemap::session::{Backend, BackendError, Session, SessionError, Step, Wanted};
use support::loaded::{Loaded, MODES, bits, decode, prefill};
use support::tiny::{Spec, Tiny, random_tokens};

/// Wide enough that each part of the work is shared among threads.
const WIDE: [Spec; 3] = [
    Spec {
        width: 256,
        feed_forward: 512,
        heads: 6,
        vocab: 1021,
        formats: &[Format::Q4_K, Format::Q6_K, Format::Q8_0, Format::F16],
        ..Spec::LLAMA
    },
    Spec { width: 192, heads: 7, kv_heads: 1, head_dim: 80, formats: &[Format::Q5_0], ..Spec::QWEN2 },
    Spec { width: 192, layers: 6, heads: 4, head_dim: 96, window: Some(33), ..Spec::GEMMA3 },
];

#[test]
fn the_same_bits_however_a_prompt_is_cut() {
    for (spec, exact) in WIDE.into_iter().flat_map(|spec| MODES.map(|exact| (spec, exact))) {
        let loaded = Loaded::new(&Tiny::new(spec));
        let tokens = random_tokens(spec.vocab, 97, 8);
        let mut session = loaded.session(exact, 2);
        let whole = bits(&prefill(&mut session, &tokens, 512));
        let hold = |what: &str, logits: &[f32]| {
            assert_eq!(bits(logits), whole, "{}: exact {exact}: {what}", spec.arch);
        };
        for chunks in [&[64, 33][..], &[1, 96], &[96, 1], &[32, 32, 32, 1], &[33, 31, 33], &[5, 90, 2]] {
            session.rewind(0);
            let mut rest = tokens.as_slice();
            let mut logits = Vec::new();
            for &chunk in chunks {
                let (now, later) = rest.split_at(chunk);
                logits = prefill(&mut session, now, 512);
                rest = later;
            }
            assert_eq!((rest.len(), session.position()), (0, 97));
            hold(&format!("chunks {chunks:?}"), &logits);
        }
        for batch in [0, 1, 2, 31, 32, 33, 96, 97] {
            session.rewind(0);
            hold(&format!("batch {batch}"), &prefill(&mut session, &tokens, batch));
        }
        session.rewind(0);
        hold("one by one", decode(&mut session, &tokens).last().unwrap());
    }
}

#[test]
fn the_same_bits_on_any_number_of_threads_and_in_every_run() {
    for (spec, exact) in WIDE.into_iter().flat_map(|spec| MODES.map(|exact| (spec, exact))) {
        let loaded = Loaded::new(&Tiny::new(spec));
        let tokens = random_tokens(spec.vocab, 70, 9);
        let run = |threads: usize| {
            let mut session = loaded.session(exact, threads);
            let mut seen = bits(&prefill(&mut session, &tokens[..65], 512));
            for row in decode(&mut session, &tokens[65..]) {
                seen.extend(bits(&row));
            }
            seen
        };
        let first = run(1);
        for threads in [1, 2, 3, 5, 2, 3] {
            assert!(run(threads) == first, "{}: exact {exact}: {threads} threads", spec.arch);
        }
    }
}

#[test]
fn after_a_rewind_the_same_bits_again() {
    for (spec, exact) in WIDE.into_iter().flat_map(|spec| MODES.map(|exact| (spec, exact))) {
        let loaded = Loaded::new(&Tiny::new(spec));
        let tokens = random_tokens(spec.vocab, 80, 10);
        let mut session = loaded.session(exact, 2);
        let rows = decode(&mut session, &tokens);
        for keep in [79, 65, 64, 31, 1, 0] {
            session.rewind(keep);
            assert_eq!(session.position(), keep);
            // Other tokens in between must leave no trace.
            decode(&mut session, &[7, 7, 7]);
            session.rewind(keep);
            let logits = prefill(&mut session, &tokens[keep..], 512);
            assert_eq!(bits(&logits), bits(&rows[79]), "{}: exact {exact}: kept {keep}", spec.arch);
        }
        session.rewind(1000);
        assert_eq!(session.position(), 80, "a rewind never goes forward");
    }
}

/// One NaN among the weights is seen in the logits, wherever it is.
#[test]
fn a_nan_is_never_hidden() {
    let caps = Spec { attention_softcap: Some(2.0), logit_softcap: Some(3.0), ..Spec::GEMMA3 };
    for spec in [Spec { rope_factors: true, bias: true, ..Spec::LLAMA }, Spec::QWEN2, Spec::QWEN3, caps] {
        let tiny = Tiny::new(Spec { layers: 2, ..spec });
        // The last token is there because a NaN in the embeddings is in its row.
        let tokens = [3, spec.vocab as u32 - 1, 5, 8];
        for name in tiny.names() {
            let mut block = tiny.clone();
            block.poison(&name);
            let mut float = tiny.clone();
            float.edit(&name, |values| *values.last_mut().unwrap() = f32::NAN);
            for (tiny, exact) in
                [&block, &float].into_iter().flat_map(|tiny| MODES.map(|exact| (tiny, exact)))
            {
                let format = tiny.format(&name);
                let mut session = Loaded::new(tiny).session(exact, 1);
                let whole = prefill(&mut session, &tokens, 512);
                let seen = whole.iter().any(|x| x.is_nan());
                assert!(seen, "{}: exact {exact}: a NaN in {name} ({format}) is hidden", spec.arch);
            }
        }
    }
}

#[test]
fn what_a_session_refuses() {
    let loaded = Loaded::new(&Tiny::new(Spec::LLAMA));
    let mut session = loaded.session(true, 1);
    let context = session.context();
    let go = &mut |_: usize, _: usize| ControlFlow::Continue(());
    assert!(matches!(session.prefill(&[], 32, go), Err(SessionError::Empty)));
    let unknown = session.prefill(&[1, 61], 32, go).unwrap_err().to_string();
    assert_eq!(unknown, "token 61 is not in the vocabulary of 61");
    assert!(matches!(session.decode(u32::MAX), Err(SessionError::UnknownToken { id: u32::MAX, .. })));
    let long = session.prefill(&vec![1; context + 1], 32, go).unwrap_err().to_string();
    assert!(long.contains("129 tokens") && long.contains("context of 128"), "{long}");
    assert_eq!(session.position(), 0, "a refusal evaluates nothing");
    session.prefill(&vec![1; context], 32, go).unwrap();
    assert!(matches!(session.decode(1), Err(SessionError::ContextFull { needed: 129, context: 128 })));
    assert_eq!(session.position(), context);
}

#[test]
fn an_interrupted_prompt_keeps_its_chunks() {
    let loaded = Loaded::new(&Tiny::new(Spec::LLAMA));
    let tokens = random_tokens(61, 97, 12);
    let mut session = loaded.session(false, 2);
    let whole = bits(&prefill(&mut session, &tokens, 512));
    session.rewind(0);
    let mut calls = Vec::new();
    let stopped = session.prefill(&tokens, 32, &mut |done, total| {
        calls.push((done, total));
        if done == 64 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(SessionError::Interrupted { done: 64, total: 97 })));
    assert_eq!((calls, session.position()), (vec![(0, 97), (32, 97), (64, 97)], 64));
    assert_eq!(bits(&prefill(&mut session, &tokens[64..], 32)), whole);
}

/// A backend whose third pass fails.
struct Failing {
    inner: CpuBackend,
    passes: usize,
}

impl Backend for Failing {
    fn config(&self) -> &Config {
        self.inner.config()
    }

    fn description(&self) -> String {
        self.inner.description()
    }

    fn device(&self) -> String {
        self.inner.device()
    }

    fn threads(&self) -> usize {
        self.inner.threads()
    }

    fn allocate(&mut self, context: usize, sequences: usize) -> Result<(), BackendError> {
        self.inner.allocate(context, sequences)
    }

    fn prefill(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        start: usize,
        wanted: Wanted,
    ) -> Result<&[f32], BackendError> {
        self.pass()?;
        self.inner.prefill(sequence, tokens, start, wanted)
    }

    fn decode(&mut self, steps: &[Step]) -> Result<&[f32], BackendError> {
        self.pass()?;
        self.inner.decode(steps)
    }
}

impl Failing {
    fn pass(&mut self) -> Result<(), BackendError> {
        self.passes += 1;
        match self.passes {
            3 | 5 => Err(BackendError::OutOfMemory { context: 0, sequences: 1, needed_mib: 0 }),
            _ => Ok(()),
        }
    }
}

/// After a failure the session stands where its cache ends, and can go on from there.
#[test]
fn a_failed_pass_fills_no_position() {
    let loaded = Loaded::new(&Tiny::new(Spec::LLAMA));
    let tokens = random_tokens(61, 97, 13);
    let whole = bits(&prefill(&mut loaded.session(false, 1), &tokens, 512));
    let inner = CpuBackend::new(
        Arc::clone(&loaded.model),
        CpuOptions { threads: 1, arithmetic: Arithmetic::EightBit },
    )
    .unwrap();
    let mut session = Session::new(Box::new(Failing { inner, passes: 0 }), 128).unwrap();
    let go = &mut |_: usize, _: usize| ControlFlow::Continue(());
    assert!(matches!(session.prefill(&tokens, 32, go), Err(SessionError::Backend(_))));
    assert_eq!(session.position(), 64);
    prefill(&mut session, &tokens[64..96], 32);
    assert!(matches!(session.decode(tokens[96]), Err(SessionError::Backend(_))));
    assert_eq!(session.position(), 96);
    assert_eq!(bits(session.decode(tokens[96]).unwrap()), whole);
}

/// Sequences side by side are as each alone.
#[test]
fn sequences_do_not_touch_each_other() {
    for (spec, exact) in WIDE.into_iter().flat_map(|spec| MODES.map(|exact| (spec, exact))) {
        let loaded = Loaded::new(&Tiny::new(spec));
        let prompts: Vec<_> =
            [5, 33, 1].into_iter().map(|len| random_tokens(spec.vocab, len, 70 + len as u64)).collect();
        let go = &mut |_: usize, _: usize| ControlFlow::Continue(());
        let mut together = loaded.sessions(exact, 2, prompts.len());
        for (sequence, prompt) in prompts.iter().enumerate() {
            let mut alone = loaded.session(exact, 2);
            let expected = bits(alone.prefill(prompt, 512, go).unwrap());
            assert_eq!(bits(together.prefill_sequence(sequence, prompt, 512, go).unwrap()), expected);
        }
        let rows = together.decode_batch(&[(2, 3), (0, 4), (1, 5)]).unwrap().to_vec();
        for (row, (sequence, token)) in rows.chunks_exact(spec.vocab).zip([(2, 3), (0, 4), (1, 5)]) {
            let mut alone = loaded.session(exact, 2);
            alone.prefill(&prompts[sequence], 512, go).unwrap();
            assert_eq!(bits(row), bits(alone.decode(token).unwrap()), "{}: sequence {sequence}", spec.arch);
        }
        let twice = together.decode_batch(&[(1, 3), (1, 4)]).unwrap_err().to_string();
        assert!(twice.contains("sequence 1"), "{twice}");
        let absent = together.decode_batch(&[(3, 3)]).unwrap_err().to_string();
        assert!(absent.contains("sequence 3") && absent.contains("has 3"), "{absent}");
    }
}

/// The logits after each token of a prompt are those after its beginnings.
#[test]
fn each_row_of_a_prompt() {
    for (spec, exact) in WIDE.into_iter().flat_map(|spec| MODES.map(|exact| (spec, exact))) {
        let loaded = Loaded::new(&Tiny::new(spec));
        let tokens = random_tokens(spec.vocab, 40, 9);
        let mut session = loaded.session(exact, 2);
        let rows = session.prefill_each(&tokens).unwrap().to_vec();
        assert_eq!((rows.len(), session.position()), (40 * spec.vocab, 40));
        session.rewind(0);
        for (token, row) in tokens.iter().zip(rows.chunks_exact(spec.vocab)) {
            assert_eq!(bits(row), bits(session.decode(*token).unwrap()), "{}: exact {exact}", spec.arch);
        }
    }
}
