//! A tiny model with a vocabulary, whose text is known: after each letter it says the next one.

use lanemap::gguf::{OwnedValue, ValueType};

use super::tiny::{Spec, Tiny};
use super::vocabulary::{ByteLevel, byte_level};

/// The merges of the vocabulary: `ab` is token 256, `bc` never is one where `ab` comes first.
const MERGES: [&str; 2] = ["a b", "b c"];

/// Its control tokens, and their ids.
const CONTROL: [&str; 2] = ["<|start|>", "<|im_end|>"];
pub(crate) const START: u32 = 258;
pub(crate) const END: u32 = 259;

/// Tokens, which is also the width: each token has an element of the residual stream to itself.
const VOCAB: usize = 260;

/// What the model says after a token: the letter after its last one, a space after `z`, the end after
/// `!`, and `a` after anything else.
fn after(token: &str) -> u32 {
    match token.bytes().last() {
        _ if CONTROL.contains(&token) => b'a'.into(),
        Some(b'z') => b' '.into(),
        Some(byte @ b'a'..=b'z') => u32::from(byte) + 1,
        Some(b'!') => END,
        _ => b'a'.into(),
    }
}

/// The model, with a token that begins a text or without one.
pub(crate) fn speller(with_bos: bool) -> Tiny {
    let ByteLevel { tokens, text } = byte_level(&MERGES, &CONTROL);
    assert_eq!(tokens.len(), VOCAB);
    let mut tiny = Tiny::new(Spec { vocab: VOCAB, width: VOCAB, ..Spec::LLAMA });
    for layer in 0..tiny.spec.layers {
        // The residual stream stays what the token's embedding is.
        for role in ["attn_output", "ffn_down"] {
            tiny.edit(&format!("blk.{layer}.{role}.weight"), |values| values.fill(0.0));
        }
    }
    tiny.edit("output_norm.weight", |values| values.fill(1.0));
    tiny.edit("token_embd.weight", |values| {
        values.fill(0.0);
        (0..VOCAB).for_each(|id| values[id * VOCAB + id] = 1.0);
    });
    tiny.edit("output.weight", |values| {
        values.fill(0.0);
        tokens.iter().enumerate().for_each(|(id, token)| values[after(token) as usize * VOCAB + id] = 1.0);
    });

    let kinds = (0..VOCAB).map(|id| if id < text { 1_i32 } else { 3 });
    tiny.set("tokenizer.ggml.model", "gpt2");
    tiny.set("tokenizer.ggml.pre", "smollm");
    tiny.set("tokenizer.ggml.merges", OwnedValue::array(ValueType::String, MERGES));
    tiny.set("tokenizer.ggml.token_type", OwnedValue::array(ValueType::I32, kinds));
    let tokens = tokens.iter().map(String::as_str);
    tiny.set("tokenizer.ggml.tokens", OwnedValue::array(ValueType::String, tokens));
    tiny.set("tokenizer.ggml.eos_token_id", END);
    if with_bos {
        tiny.set("tokenizer.ggml.bos_token_id", START);
    }
    tiny
}
