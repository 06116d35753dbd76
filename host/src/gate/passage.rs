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
    /// So many passages, each with its own part of the text.
    ///
    /// # Panics
    /// As [`tokens`].
    #[must_use]
    pub fn some(tokenizer: &Tokenizer, count: usize, [prompt, steps]: [usize; 2]) -> Vec<Self> {
        let all = tokens(tokenizer, count * (prompt + steps));
        let passage = |tokens: &[u32]| {
            let (prompt, steps) = tokens.split_at(prompt);
            Self { prompt: prompt.to_vec(), steps: steps.to_vec() }
        };
        all.chunks_exact((prompt + steps).max(1)).map(passage).collect()
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
