//! The loop on a backend that plays a script.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};

use super::*;
use crate::model::{Activation, Architecture, Config, Rope, RopeOrder, RopeScaling};
use crate::sampling::SamplingOptions;
use crate::session::{Backend, BackendError, Step, Wanted};
use crate::tokenizer::{RoleIds, TokenKind, Vocab};

const END: u32 = 2;
/// The token of byte 0; byte `b` is token `BYTES + b`.
const BYTES: u32 = 3;
/// `d` and the first byte of a character.
const D_AND_HALF: u32 = 259;
const VOCAB_SIZE: usize = 260;

/// The prompt `>>`.
const PROMPT: [u32; 2] = [BYTES + b'>' as u32; 2];

/// Three special tokens, one token for each byte, and [`D_AND_HALF`].
fn tokenizer() -> Tokenizer {
    let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>").into_bytes());
    let special = [TokenKind::Unknown, TokenKind::Control, TokenKind::Control];
    Tokenizer::from_vocab(Vocab {
        model: "llama".into(),
        tokens: ["<unk>", "<s>", "</s>"]
            .into_iter()
            .map(Vec::from)
            .chain(bytes)
            .chain([b"d\xf0".to_vec()])
            .collect(),
        kinds: special.into_iter().chain([TokenKind::Byte; 256]).chain([TokenKind::Normal]).collect(),
        roles: RoleIds { bos: Some(1), eos: Some(END), unknown: Some(0), ..RoleIds::default() },
        ..Vocab::default()
    })
    .unwrap()
}

fn bytes(text: &[u8]) -> Vec<u32> {
    text.iter().map(|&byte| BYTES + u32::from(byte)).collect()
}

/// Position of the first token, and the tokens.
type Call = (usize, Vec<u32>);

/// A backend whose best token after position `p` is `script[p]`, and which notes the calls.
struct Script {
    config: Config,
    script: Vec<u32>,
    logits: Vec<f32>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Backend for Script {
    fn config(&self) -> &Config {
        &self.config
    }

    fn description(&self) -> String {
        "script".into()
    }

    fn device(&self) -> String {
        "script".into()
    }

    fn threads(&self) -> usize {
        1
    }

    fn allocate(&mut self, _: usize, _: usize) -> Result<(), BackendError> {
        Ok(())
    }

    fn prefill(
        &mut self,
        _: usize,
        tokens: &[u32],
        start: usize,
        wanted: Wanted,
    ) -> Result<&[f32], BackendError> {
        self.calls.lock().unwrap().push((start, tokens.to_vec()));
        let last = start + tokens.len() - 1;
        self.logits = (0..VOCAB_SIZE).map(|id| -(id as f32)).collect();
        self.logits[self.script[last] as usize] = 1.0;
        Ok(&self.logits[..wanted.rows(1) * VOCAB_SIZE])
    }

    fn decode(&mut self, steps: &[Step]) -> Result<&[f32], BackendError> {
        let Step { sequence, token, position } = steps[0];
        self.prefill(sequence, &[token], position, Wanted::Last)
    }
}

fn config() -> Config {
    let rope = Rope { dims: 2, base: 1e4, order: RopeOrder::Halves, scaling: RopeScaling::None };
    Config {
        architecture: Architecture::Llama,
        name: String::new(),
        layers: 1,
        width: 2,
        heads: 1,
        kv_heads: 1,
        head_dim: 2,
        feed_forward: 2,
        vocab_size: VOCAB_SIZE,
        context_length: 64,
        norm_epsilon: 1e-5,
        rope,
        rope_sliding: rope,
        sliding_window: None,
        embedding_scale: 1.0,
        attention_scale: 1.0,
        attention_softcap: None,
        logit_softcap: None,
        activation: Activation::Silu,
    }
}

/// Keeps what is shown; interrupts and fails where it is told to.
#[derive(Default)]
struct World {
    shown: Vec<String>,
    progress: Vec<(usize, usize)>,
    interrupt_after_texts: Option<usize>,
    closed: bool,
}

impl Surroundings for World {
    fn show(&mut self, text: &str) -> io::Result<()> {
        if self.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.shown.push(text.to_owned());
        Ok(())
    }

    fn prefilled(&mut self, done: usize, total: usize) {
        self.progress.push((done, total));
    }

    fn interrupted(&self) -> bool {
        self.interrupt_after_texts.is_some_and(|count| self.shown.len() >= count)
    }
}

/// A run after the prompt `>>`, of what the script gives, in a context of `context`.
struct Run {
    result: Result<(Generation, StopReason), GenerationError>,
    world: World,
    calls: Vec<Call>,
}

fn run<'a>(answer: &[u32], context: usize, change: impl FnOnce(&mut Request<'a>, &mut World)) -> Run {
    let calls = Arc::default();
    // Position 0 is the prompt's first token, whose prediction nobody asks for.
    let script = [0].into_iter().chain(answer.iter().copied()).collect();
    let backend = Script { config: config(), script, logits: Vec::new(), calls: Arc::clone(&calls) };
    let mut session = Session::new(Box::new(backend), context).unwrap();
    let mut sampler = Sampler::new(SamplingOptions::greedy(), VOCAB_SIZE, context).unwrap();
    let mut request = Request {
        prompt: &PROMPT,
        limit: None,
        batch: 8,
        stop: &[],
        special: false,
        top_logits: 0,
        hash_logits: false,
    };
    let mut world = World::default();
    change(&mut request, &mut world);
    let result = generate(&mut session, &tokenizer(), &mut sampler, &request, &mut world);
    let calls = calls.lock().unwrap().clone();
    Run { result, world, calls }
}

fn answer(text: &str) -> Vec<u32> {
    let mut ids = bytes(text.as_bytes());
    ids.push(END);
    ids
}

#[test]
fn text_streams_until_the_end_token() {
    let answer = answer("hé!");
    let run = run(&answer, 64, |_, _| {});
    let (generation, reason) = run.result.unwrap();
    assert_eq!(reason, StopReason::EndOfGeneration);
    assert_eq!(generation.ids, answer);
    assert_eq!(generation.text, "hé!");
    assert_eq!(run.world.shown, ["h", "é", "!"]);
    // Every token but the end is evaluated, each at its own position.
    let mut expected = vec![(0, PROMPT.to_vec())];
    expected.extend((2..).zip(answer[..4].iter().map(|&id| vec![id])));
    assert_eq!(run.calls, expected);
    assert_eq!(generation.decoded, 4);
}

#[test]
fn the_end_token_shows_where_special_tokens_do() {
    let run = run(&answer("a"), 64, |request, _| request.special = true);
    assert_eq!(run.result.unwrap().0.text, "a</s>");
}

#[test]
fn the_limit_ends_it_and_the_last_token_is_not_evaluated() {
    for limit in [0, 1, 2, 3] {
        let run = run(&answer("abcdef"), 64, |request, _| {
            request.limit = Some(limit);
            request.top_logits = 2;
        });
        let (generation, reason) = run.result.unwrap();
        assert_eq!(reason, StopReason::Length);
        assert_eq!(generation.text, "abcdef"[..limit]);
        assert_eq!(run.calls.len(), limit.max(1));
        assert_eq!(generation.top_logits.len(), limit.max(1));
        assert_eq!(generation.top_logits[0], [(BYTES + u32::from(b'a'), 1.0), (0, -0.0)]);
    }
}

#[test]
fn a_full_context_ends_it() {
    for (context, text) in [(2, "a"), (3, "ab"), (5, "abcd")] {
        let run = run(&answer("abcdef"), context, |_, _| {});
        let (generation, reason) = run.result.unwrap();
        assert_eq!((generation.text.as_str(), reason), (text, StopReason::ContextFull));
    }
    match run(&answer("a"), 1, |_, _| {}).result {
        Err(GenerationError::Session(SessionError::ContextFull { needed: 2, context: 1 })) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stop_string_ends_it_and_is_not_shown() {
    let stop = ["\n\n".to_owned(), "cd".to_owned()];
    let run = run(&answer("ab\nc\ncdef"), 64, |request, _| request.stop = &stop);
    let (generation, reason) = run.result.unwrap();
    assert_eq!(reason, StopReason::StopString);
    assert_eq!(generation.text, "ab\nc\n");
    assert_eq!(generation.ids, bytes(b"ab\nc\ncd"));
    assert_eq!(run.world.shown, ["a", "b", "\n", "c", "\n"]);
}

#[test]
fn what_follows_a_stop_string_in_its_token_is_dropped() {
    let stop = ["cd".to_owned()];
    let script = [&bytes(b"abc")[..], &[D_AND_HALF]].concat();
    let run = run(&script, 64, |request, _| request.stop = &stop);
    assert_eq!(run.result.unwrap().0.text, "ab");
}

#[test]
fn what_was_held_back_comes_at_the_end() {
    let stop = ["xyz".to_owned()];
    let held = |ids: &[u32]| run(ids, 64, |request, _| request.stop = &stop).result.unwrap();
    assert_eq!(held(&answer("axy")).0.text, "axy");
    // Half a character, then the end: one replacement character.
    let (generation, reason) = held(&[BYTES + 0xF0, BYTES + 0x9F, END]);
    assert_eq!((generation.text.as_str(), reason), ("\u{fffd}", StopReason::EndOfGeneration));
    assert_eq!(held(&[BYTES + 0xF0, BYTES + 0x9F, BYTES + 0x98, BYTES + 0x8A, END]).0.text, "😊");
}

#[test]
fn an_interrupt_ends_it_between_tokens() {
    let run = run(&answer("abcdef"), 64, |_, world| world.interrupt_after_texts = Some(3));
    let (generation, reason) = run.result.unwrap();
    assert_eq!((generation.text.as_str(), reason), ("abc", StopReason::Interrupted));
}

#[test]
fn an_interrupt_ends_it_within_the_prompt() {
    let run = run(&answer("abc"), 64, |_, world| world.interrupt_after_texts = Some(0));
    let (generation, reason) = run.result.unwrap();
    assert_eq!((generation.ids.len(), reason), (0, StopReason::Interrupted));
    assert_eq!((generation.prefilled, run.calls.len()), (0, 0));
}

#[test]
fn the_prompt_is_read_in_batches() {
    let run = run(&answer("a"), 64, |request, _| request.batch = 1);
    assert_eq!(run.calls[..2], [(0, bytes(b">")), (1, bytes(b">"))]);
    assert_eq!(run.world.progress, [(0, 2), (1, 2), (2, 2)]);
}

#[test]
fn a_closed_output_ends_it_at_once() {
    let run = run(&answer("abc"), 64, |_, world| world.closed = true);
    match run.result {
        Err(GenerationError::Output(error)) => assert_eq!(error.kind(), io::ErrorKind::BrokenPipe),
        other => panic!("{other:?}"),
    }
    assert_eq!(run.calls.len(), 1);
}

#[test]
fn the_prompt_counts_for_the_penalties() {
    let options = SamplingOptions { presence_penalty: 2.0, ..SamplingOptions::greedy() };
    let script = vec![0, BYTES + u32::from(b'>'), END, END];
    let backend = Script { config: config(), script, logits: Vec::new(), calls: Arc::default() };
    let mut session = Session::new(Box::new(backend), 64).unwrap();
    let mut sampler = Sampler::new(options, VOCAB_SIZE, 64).unwrap();
    let request = Request {
        prompt: &PROMPT,
        limit: Some(1),
        batch: 8,
        stop: &[],
        special: false,
        top_logits: 0,
        hash_logits: false,
    };
    let mut world = World::default();
    let (generation, _) = generate(&mut session, &tokenizer(), &mut sampler, &request, &mut world).unwrap();
    // The best token occurred, so its logit falls from 1 to -1, below the second best's 0.
    assert_eq!(generation.ids, [0]);
}

#[test]
fn the_largest_logits_come_in_order() {
    let logits = [0.5, 2.0, f32::NEG_INFINITY, 2.0, -1.0];
    assert_eq!(largest(&logits, 3), [(1, 2.0), (3, 2.0), (0, 0.5)]);
    assert_eq!(largest(&logits, 9).len(), 5);
    assert_eq!(largest(&logits, 0), []);
}
