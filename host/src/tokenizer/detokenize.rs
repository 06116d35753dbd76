//! Tokens to text, one at a time, without ever printing half a character.

use super::Tokenizer;

/// Turns tokens into text as they come.
///
/// A character may be spread over several tokens: its bytes are held back until it is whole.
/// Bytes that can never be a character become one U+FFFD as soon as that is certain, by the
/// rule of [`String::from_utf8_lossy`], so the text is the same streamed or whole. If the first
/// token is BOS, the tokens are those of a whole text, and the space that encoding put before
/// it is taken away again.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    special: bool,
    /// The beginning of a character.
    held: Vec<u8>,
    started: bool,
    drop_space: bool,
}

impl Detokenizer {
    /// `special`: control tokens print their name instead of nothing.
    #[must_use]
    pub fn new(special: bool) -> Self {
        Self { special, held: Vec::new(), started: false, drop_space: false }
    }

    /// The text that is certain once token `id` has come. An id outside the vocabulary prints
    /// nothing.
    #[must_use = "the text is printed only if the caller prints it"]
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        let piece = tokenizer.piece(id, self.special).unwrap_or_default();
        let mut piece: &[u8] = &piece;
        if !self.started {
            self.started = true;
            self.drop_space = tokenizer.space_prefix && Some(id) == tokenizer.bos;
        } else if self.drop_space && !piece.is_empty() {
            piece = piece.strip_prefix(b" ").unwrap_or(piece);
            self.drop_space = false;
        }
        self.held.extend_from_slice(piece);

        let mut text = String::new();
        let mut rest: &[u8] = &self.held;
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    // `None`: what is there may still become a character.
                    let Some(invalid) = error.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[invalid..];
                }
            }
        }
        let printed = self.held.len() - rest.len();
        self.held.drain(..printed);
        text
    }

    /// The text of what is still held back: one U+FFFD for a character that never became whole.
    #[must_use = "the text is printed only if the caller prints it"]
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        rest
    }
}
