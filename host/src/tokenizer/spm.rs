//! SentencePiece-style tokenizing: the pair of neighbours whose union scores highest merges
//! first; a character that is no token is spelled in bytes.

use std::borrow::Cow;

use memchr::memmem;

use super::lexicon::Lexicon;
use super::merge::{Symbol, merge};

/// How SentencePiece writes a space (U+2581).
const SPACE: char = '\u{2581}';

/// The scores and the byte tokens of a SentencePiece-style vocabulary.
pub(super) struct Spm {
    /// A score of each token as an integer that orders like it.
    scores: Vec<i32>,
    /// The token that spells each byte, or the unknown token.
    bytes: [Option<u32>; 256],
}

impl Spm {
    pub(super) fn new(scores: &[f32], lexicon: &Lexicon, unknown: Option<u32>) -> Self {
        let byte = |byte: u8| {
            lexicon
                .find(format!("<0x{byte:02X}>").as_bytes())
                .or_else(|| lexicon.find_text(&[byte]))
                .or(unknown)
        };
        let bytes: [Option<u32>; 256] = std::array::from_fn(|index| byte(index as u8));
        Self { scores: scores.iter().map(|&score| ordered(score)).collect(), bytes }
    }

    /// Whether there is a byte that neither a token spells nor the unknown token stands for.
    pub(super) fn lacks_bytes(&self) -> bool {
        self.bytes.contains(&None)
    }

    /// Appends the tokens of `text`; `prefix` puts a space before it.
    pub(super) fn encode(&self, lexicon: &Lexicon, text: &str, prefix: bool, tokens: &mut Vec<u32>) {
        let spaced: String = prefix
            .then_some(SPACE)
            .into_iter()
            .chain(text.chars().map(|c| if c == ' ' { SPACE } else { c }))
            .collect();
        let characters = spaced.char_indices().map(|(start, c)| {
            let len = c.len_utf8();
            (len, lexicon.find_text(&spaced.as_bytes()[start..start + len]))
        });
        let pair = |left: &Symbol, right: &Symbol| {
            let token = lexicon.find_text(&spaced.as_bytes()[left.joined(right)])?;
            Some((self.scores[token as usize], token))
        };
        merge(characters, pair, |symbol| match symbol.token {
            Some(token) => tokens.push(token),
            None => {
                let bytes = &spaced.as_bytes()[symbol.range()];
                tokens.extend(bytes.iter().filter_map(|&byte| self.bytes[usize::from(byte)]));
            }
        });
    }
}

/// The bytes that a token with this text prints.
pub(super) fn print(text: &[u8]) -> Cow<'_, [u8]> {
    let space = SPACE.encode_utf8(&mut [0; 4]).as_bytes().to_vec();
    if memmem::find(text, &space).is_none() {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memmem::find(rest, &space) {
        bytes.extend_from_slice(&rest[..at]);
        bytes.push(b' ');
        rest = &rest[at + space.len()..];
    }
    bytes.extend_from_slice(rest);
    Cow::Owned(bytes)
}

/// The byte that `<0xE2>` names.
pub(super) fn byte_value(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// An integer that orders as the score does, both zeros being equal and NaN at the ends.
fn ordered(score: f32) -> i32 {
    // Adding 0 turns -0 into +0. A negative number's bits count downwards: flip all but the sign.
    let bits = (score + 0.0).to_bits().cast_signed();
    bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed()
}
