//! A vocabulary of any size, so that text can go into a model of random weights and comes out of it.

use crate::gguf::{OwnedValue, ValueType};
use crate::tokenizer::printable;

/// How many tokens are single bytes: the first ones. The next one ends a generation, the rest are words.
pub(super) const BYTES: usize = 256;

/// The numbers of `TokenKind::Normal` and `TokenKind::Control` in a file.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

/// The metadata of a byte-level vocabulary of `size` tokens, more than [`BYTES`]. It has no merges: what is
/// none of the words becomes its bytes.
pub(super) fn metadata(size: usize) -> Vec<(String, OwnedValue)> {
    let words = (0..size - BYTES - 1).map(word);
    let bytes = (0..=u8::MAX).map(|byte| printable(byte).to_string());
    let tokens = bytes.chain(["<|end|>".to_owned()]).chain(words);
    let kinds = (0..size).map(|id| if id == BYTES { CONTROL } else { NORMAL });
    let none: [&str; 0] = [];
    let end = BYTES as u32;
    [
        ("model", "gpt2".into()),
        ("pre", "gpt-2".into()),
        ("tokens", OwnedValue::array(ValueType::String, tokens)),
        ("token_type", OwnedValue::array(ValueType::I32, kinds)),
        ("merges", OwnedValue::array(ValueType::String, none)),
        ("bos_token_id", end.into()),
        ("eos_token_id", end.into()),
        ("add_bos_token", false.into()),
    ]
    .map(|(key, value)| (format!("tokenizer.ggml.{key}"), value))
    .into()
}

/// A word of syllables with a space before it, another one for each number.
fn word(number: usize) -> String {
    const CONSONANTS: &[u8] = b"bdfghjklmnprstvwz";
    const VOWELS: &[u8] = b"aeiou";
    // The space as byte-level vocabularies write it.
    let mut word = "Ġ".to_owned();
    let mut left = number;
    loop {
        let syllable = left % (CONSONANTS.len() * VOWELS.len());
        word.push(CONSONANTS[syllable / VOWELS.len()].into());
        word.push(VOWELS[syllable % VOWELS.len()].into());
        left /= CONSONANTS.len() * VOWELS.len();
        // A first syllable `ba` is the digit 0: counting from it keeps words of unequal length apart.
        match left.checked_sub(1) {
            None => return word,
            Some(less) => left = less,
        }
    }
}
