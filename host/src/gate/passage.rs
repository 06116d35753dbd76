//! The text that models are judged on.

use crate::session::{Session, SessionError};
use crate::tokenizer::Tokenizer;

/// English prose about kernels, an older state of `docs/emulator.md`. It stays as it is: identity's
/// baselines are of its tokens.
pub const TEXT: &str = include_str!("passage.txt");

/// Tokens of a prompt, and tokens that are fed one at a time behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Evaluated together.
    pub prompt: Vec<u32>,
    /// Evaluated each alone.
    pub steps: Vec<u32>,
}

/// The text's first tokens, begun anew until there are as many.
///
/// # Panics
/// If the vocabulary has no token for any of it.
#[must_use]
pub fn tokens(tokenizer: &Tokenizer, count: usize) -> Vec<u32> {
    let tokens = tokenizer.encode(TEXT, true, false);
    assert!(!tokens.is_empty(), "a text has tokens");
    tokens.into_iter().cycle().take(count).collect()
}

impl Passage {
    /// So many passages, each with its own part of the text. Where the tokenizer begins a text with a
    /// token, each begins with it: models that were trained so attend to it all along, and are far more
    /// sensitive to rounding where it is missing (Gemma 3's logits by a factor of 3 to 30).
    ///
    /// # Panics
    /// As [`tokens`].
    #[must_use]
    pub fn some(tokenizer: &Tokenizer, count: usize, [prompt, steps]: [usize; 2]) -> Vec<Self> {
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        let (len, first) = (prompt + steps, usize::from(bos.is_some()));
        let own = len.saturating_sub(first);
        let all = tokens(tokenizer, first + count * own);
        let passage = |number: usize| {
            let part = &all[first + number * own..][..own];
            let tokens: Vec<u32> = bos.iter().chain(part).copied().take(len).collect();
            let (prompt, steps) = tokens.split_at(prompt);
            Self { prompt: prompt.to_vec(), steps: steps.to_vec() }
        };
        (0..count).map(passage).collect()
    }

    /// The logits after each token of the prompt, and after each step: the prompt in chunks of `batch`.
    ///
    /// # Errors
    /// Those of the session.
    pub fn play(&self, session: &mut Session, batch: usize) -> Result<[Vec<f32>; 2], SessionError> {
        session.rewind(0);
        let (mut prompt, mut steps) = (Vec::new(), Vec::new());
        for chunk in self.prompt.chunks(batch.max(1)) {
            prompt.extend_from_slice(session.prefill_each(chunk)?);
        }
        for &token in &self.steps {
            steps.extend_from_slice(session.decode(token)?);
        }
        Ok([prompt, steps])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use crate::tokenizer::{RoleIds, TokenKind, Vocab};

    const BOS: u32 = 256;

    /// A token for each byte, and one that begins a text.
    fn tokenizer(add_bos: bool) -> Tokenizer {
        let byte = |byte: u8| format!("<0x{byte:02X}>").into_bytes();
        let vocab = Vocab {
            model: "llama".to_owned(),
            tokens: (0..=255).map(byte).chain([b"<s>".to_vec()]).collect(),
            scores: vec![0.0; 257],
            kinds: [vec![TokenKind::Byte; 256], vec![TokenKind::Control]].concat(),
            roles: RoleIds { bos: Some(BOS), ..RoleIds::default() },
            add_bos: Some(add_bos),
            ..Vocab::default()
        };
        Tokenizer::from_vocab(vocab).unwrap()
    }

    #[test]
    fn passages_begin_as_texts_do_and_share_nothing_else() {
        for adds_bos in [true, false] {
            let tokenizer = tokenizer(adds_bos);
            let bos = usize::from(adds_bos);
            let text = &tokens(&tokenizer, 40)[bos..];
            let passages = Passage::some(&tokenizer, 3, [5, 2]);
            assert_eq!(passages.len(), 3);
            for (Passage { prompt, steps }, text) in passages.iter().zip(text.chunks(7 - bos)) {
                assert_eq!((prompt.len(), steps.len()), (5, 2));
                assert_eq!(prompt[..bos], [BOS][..bos]);
                assert_eq!([&prompt[bos..], steps].concat(), text);
            }
        }
    }
}
