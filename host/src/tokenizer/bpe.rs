//! Byte-level BPE: text is cut into words, a word's bytes are written as printable characters,
//! and inside a word the pair of tokens that stands first in the list of merges merges first.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::lexicon::Lexicon;
use super::merge::{Symbol, merge};
use super::pretokenize::PreTokenizer;

/// The merges and the word rule of a byte-level BPE vocabulary.
pub(super) struct Bpe {
    words: PreTokenizer,
    /// The token of each byte.
    bytes: [Option<u32>; 256],
    /// Rank and result of the pairs that merge.
    merges: HashMap<(u32, u32), (u32, u32)>,
}

impl Bpe {
    pub(super) fn new(words: PreTokenizer, merges: &[Vec<u8>], lexicon: &Lexicon) -> Self {
        let mut table = HashMap::with_capacity(merges.len());
        for (rank, pair) in (0u32..).zip(merges) {
            if let Some((left, right, joined)) = resolve(pair, lexicon) {
                table.entry((left, right)).or_insert((rank, joined));
            }
        }
        let ignored = merges.len() - table.len();
        if ignored > 0 {
            tracing::warn!(
                "{ignored} of {} tokenizer merges repeat another or name a text that is no token: ignored",
                merges.len()
            );
        }
        let bytes: [Option<u32>; 256] = std::array::from_fn(|byte| {
            lexicon.find_text(PRINTABLE[byte].encode_utf8(&mut [0; 4]).as_bytes())
        });
        let lost = (0..=u8::MAX).filter(|&byte| in_utf8(byte) && bytes[usize::from(byte)].is_none()).count();
        if lost > 0 {
            tracing::debug!(
                "the vocabulary has no token for {lost} of the bytes that text can hold: text with them loses them"
            );
        }
        Self { words, bytes, merges: table }
    }

    /// Appends the tokens of `text`.
    pub(super) fn encode(&self, lexicon: &Lexicon, text: &str, tokens: &mut Vec<u32>) {
        let mut written = String::new();
        for word in self.words.split(text) {
            let word = &text.as_bytes()[word];
            if self.words.whole_words_first() {
                written.clear();
                written.extend(word.iter().map(|&byte| printable(byte)));
                if let Some(token) = lexicon.find_text(written.as_bytes()) {
                    tokens.push(token);
                    continue;
                }
            }
            let bytes = word.iter().map(|&byte| (1, self.bytes[usize::from(byte)]));
            let pair = |left: &Symbol, right: &Symbol| {
                let &(rank, joined) = self.merges.get(&(left.token?, right.token?))?;
                Some((Reverse(rank), joined))
            };
            merge(bytes, pair, |symbol| tokens.extend(symbol.token));
        }
    }
}

/// The bytes that a token with this text prints.
pub(super) fn print(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match byte_of(c) {
                Some(byte) => bytes.push(byte),
                None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        bytes.extend_from_slice(chunk.invalid());
    }
    bytes
}

/// Left, right and joined token of a merge `left right`. The separator is the first space that
/// has something before it.
fn resolve(merge: &[u8], lexicon: &Lexicon) -> Option<(u32, u32, u32)> {
    let separator = 1 + merge.get(1..)?.iter().position(|&byte| byte == b' ')?;
    let (left, right) = (&merge[..separator], &merge[separator + 1..]);
    let joined = [left, right].concat();
    Some((lexicon.find_text(left)?, lexicon.find_text(right)?, lexicon.find_text(&joined)?))
}

/// Whether a byte can stand in UTF-8 text.
const fn in_utf8(byte: u8) -> bool {
    !matches!(byte, 0xC0 | 0xC1 | 0xF5..=0xFF)
}

/// Bytes whose character is visible and not a space stand for themselves; the other 68 are
/// written as U+0100, U+0101, ... in order. Source: the byte alphabet published with GPT-2.
const fn is_visible(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const PRINTABLE: [char; 256] = {
    let mut table = ['\0'; 256];
    let mut hidden: u8 = 0;
    let mut byte = 0;
    while byte < 256 {
        table[byte] = if is_visible(byte as u8) {
            byte as u8 as char
        } else {
            hidden += 1;
            // At most 68 steps above U+00FF: always a character.
            match char::from_u32(0xFF + hidden as u32) {
                Some(c) => c,
                None => '\0',
            }
        };
        byte += 1;
    }
    table
};

/// The inverse of [`PRINTABLE`], by code point.
const BYTE_OF: [Option<u8>; 0x100 + 68] = {
    let mut table = [None; 0x100 + 68];
    let mut byte = 0;
    while byte < 256 {
        table[PRINTABLE[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    table
};

/// The character that writes a byte.
pub(crate) fn printable(byte: u8) -> char {
    PRINTABLE[usize::from(byte)]
}

/// The byte that a character writes.
fn byte_of(c: char) -> Option<u8> {
    BYTE_OF.get(c as usize).copied().flatten()
}
