//! Tokens that are found in a text before anything is merged: control tokens, where the text
//! may hold them, and user-defined tokens everywhere.

use std::ops::Range;

use aho_corasick::AhoCorasick;
use memchr::memmem;

use super::TokenizerError;
use super::lexicon::Lexicon;
use super::vocab::TokenKind;

/// A text, cut at the special tokens in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Text to be merged into tokens.
    Text(Range<usize>),
    /// A token.
    Token(u32),
}

/// Finds special tokens.
///
/// The longest token goes first, through the whole text and from left to right; the next one
/// sees what is left. This is llama.cpp's order, not "the longest at each place": of `ab` and
/// `bcd` the text `abcd` holds `bcd`. A model may have thousands of special tokens and a text a
/// handful, so one automaton first tells which occur at all.
pub(super) struct SpecialTokens {
    /// Longest first.
    tokens: Vec<Special>,
    automaton: AhoCorasick,
}

struct Special {
    id: u32,
    text: Vec<u8>,
    /// Found in any text; a control or unknown token only in text that may hold it.
    user_defined: bool,
}

impl SpecialTokens {
    pub(super) fn new(lexicon: &Lexicon) -> Result<Self, TokenizerError> {
        let mut tokens: Vec<Special> = lexicon
            .iter()
            .filter(|(_, text, kind)| {
                // Only whole characters match, so that what lies between matches is text.
                !text.is_empty()
                    && std::str::from_utf8(text).is_ok()
                    && matches!(kind, TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined)
            })
            .map(|(id, text, kind)| Special {
                id,
                text: text.to_vec(),
                user_defined: kind == TokenKind::UserDefined,
            })
            .collect();
        tokens.sort_by_key(|token| std::cmp::Reverse(token.text.len()));
        let automaton = AhoCorasick::new(tokens.iter().map(|token| &token.text))
            .map_err(|error| TokenizerError::SpecialTokens(error.to_string()))?;
        Ok(Self { tokens, automaton })
    }

    /// Cuts `text`. `untrusted` are the stretches, in order and apart, that no control token may
    /// touch.
    pub(super) fn split(&self, text: &str, untrusted: &[Range<usize>]) -> Vec<Part> {
        let mut parts = Vec::new();
        if !text.is_empty() {
            parts.push(Part::Text(0..text.len()));
        }
        for index in self.present(text) {
            let token = &self.tokens[index];
            let finder = memmem::Finder::new(&token.text);
            let mut finer = Vec::with_capacity(parts.len());
            for part in parts {
                let Part::Text(range) = part else {
                    finer.push(part);
                    continue;
                };
                let (mut start, mut from) = (range.start, range.start);
                while let Some(found) = finder.find(&text.as_bytes()[from..range.end]) {
                    let found = from + found..from + found + token.text.len();
                    if !token.user_defined && touches(untrusted, &found) {
                        from = found.start + 1;
                        continue;
                    }
                    if start < found.start {
                        finer.push(Part::Text(start..found.start));
                    }
                    finer.push(Part::Token(token.id));
                    (start, from) = (found.end, found.end);
                }
                if start < range.end {
                    finer.push(Part::Text(start..range.end));
                }
            }
            parts = finer;
        }
        parts
    }

    /// Indices of the tokens that occur in `text`, longest token first.
    fn present(&self, text: &str) -> Vec<usize> {
        let mut seen = vec![false; self.tokens.len()];
        let mut missing = seen.len();
        for found in self.automaton.find_overlapping_iter(text) {
            let place = &mut seen[found.pattern().as_usize()];
            missing -= usize::from(!*place);
            *place = true;
            if missing == 0 {
                break;
            }
        }
        (0..seen.len()).filter(|&index| seen[index]).collect()
    }
}

/// Whether `range` shares a byte with one of `stretches`, which are in order.
fn touches(stretches: &[Range<usize>], range: &Range<usize>) -> bool {
    let after = stretches.partition_point(|stretch| stretch.end <= range.start);
    stretches.get(after).is_some_and(|stretch| stretch.start < range.end)
}
