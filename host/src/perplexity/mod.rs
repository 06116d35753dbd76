//! Perplexity of a text, by llama.cpp's definition (`llama-perplexity` without a stride).
//!
//! The text's tokens are cut into chunks of as many as the context holds; what is left over is dropped.
//! Each chunk starts from an empty context, its first token replaced by the one that begins a text where
//! the vocabulary adds that. Only the tokens of the second half are scored, so that each has half a chunk
//! before it: of a chunk of `n` tokens, position `n / 2` says how likely the token at `n / 2 + 1` is, and
//! so on to the last. The perplexity is exp of the mean of their negative log-likelihoods.
//!
//! | file | what |
//! | --- | --- |
//! | `score` | log-probabilities of logits; means and their standard errors |
//! | `divergence` | how far two runs' log-probabilities are apart |
//! | `saved` | the file that holds a run's |

mod divergence;
mod saved;
mod score;

use std::ops::ControlFlow;

use rayon::ThreadPool;
use rayon::prelude::*;

pub use divergence::{Divergence, Farthest, Summary};
pub use saved::{Header, Reader, SavedError, Writer};
pub use score::{Estimate, log_probabilities, normalizer};

use crate::session::{Session, SessionError};

/// The smallest context in which a token is scored.
pub const SMALLEST_CONTEXT: usize = 3;

/// Why there is no perplexity.
#[derive(Debug, thiserror::Error)]
pub enum PerplexityError {
    /// The text is too short.
    #[error(
        "the text has {tokens} tokens, fewer than one chunk of {context}: take a longer text or a smaller --ctx"
    )]
    TooShort {
        /// Its tokens.
        tokens: usize,
        /// Tokens of a chunk.
        context: usize,
    },
    /// The tokens could not be evaluated.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A logit is NaN or infinite.
    #[error("chunk {chunk}: the logits after position {position} are not all finite")]
    NotFinite {
        /// The chunk, counted from 0.
        chunk: usize,
        /// The position in it.
        position: usize,
    },
    /// The file of log-probabilities.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// The caller's `progress` asked to stop.
    #[error("interrupted after {done} of {chunks} chunks")]
    Interrupted {
        /// Chunks that are scored.
        done: usize,
        /// Chunks in all.
        chunks: usize,
    },
}

/// A text as the model gets it: chunks of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    context: usize,
    tokens: Vec<u32>,
}

impl Text {
    /// The whole chunks of `context` tokens (at least [`SMALLEST_CONTEXT`]) of a text, at most `limit` of
    /// them; the first token of each is `bos`, if that is given.
    ///
    /// # Errors
    /// [`PerplexityError::TooShort`] if there is not one chunk.
    pub fn new(
        mut tokens: Vec<u32>,
        context: usize,
        bos: Option<u32>,
        limit: Option<usize>,
    ) -> Result<Self, PerplexityError> {
        let context = context.max(SMALLEST_CONTEXT);
        let chunks = (tokens.len() / context).min(limit.unwrap_or(usize::MAX));
        if chunks == 0 {
            return Err(PerplexityError::TooShort { tokens: tokens.len(), context });
        }
        tokens.truncate(chunks * context);
        if let Some(bos) = bos {
            tokens.iter_mut().step_by(context).for_each(|first| *first = bos);
        }
        Ok(Self { context, tokens })
    }

    /// Tokens of a chunk.
    #[must_use]
    pub fn context(&self) -> usize {
        self.context
    }

    /// The tokens of all chunks, one behind the other.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many chunks there are.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.tokens.len() / self.context
    }

    /// Tokens of a chunk that are scored.
    #[must_use]
    pub fn scored(&self) -> usize {
        scored(self.context)
    }
}

/// Tokens that are scored in a chunk of `context`.
const fn scored(context: usize) -> usize {
    context - 1 - context / 2
}

/// What is done with the log-probabilities of the scored positions, besides their mean.
#[derive(Debug, Default)]
pub struct Uses {
    /// They are written to a file.
    pub save: Option<Writer>,
    /// They are compared with those in a file.
    pub compare: Option<(Reader, Divergence)>,
    rows: Vec<f32>,
}

/// Rows whose log-probabilities are there at a time.
const ROWS: usize = 32;

/// Scores a text. Prompts go through in pieces of `batch` tokens, and no more rows of logits than that are
/// there at a time; `pool` takes their logarithms. `progress` is told the chunks done and the negative
/// log-likelihoods so far after each chunk, and may stop the work.
///
/// # Errors
/// [`PerplexityError`]; what `uses` has written by then is not whole.
pub fn run(
    session: &mut Session,
    text: &Text,
    batch: usize,
    pool: &ThreadPool,
    uses: &mut Uses,
    progress: &mut dyn FnMut(usize, &Estimate) -> ControlFlow<()>,
) -> Result<Estimate, PerplexityError> {
    let batch = batch.max(1);
    let vocab_size = session.config().vocab_size;
    let mut all = Estimate::default();
    for (chunk, tokens) in text.tokens.chunks_exact(text.context).enumerate() {
        session.rewind(0);
        let (before, scored) = tokens.split_at(text.context / 2);
        session.prefill(before, batch, &mut |_, _| ControlFlow::Continue(()))?;
        let mut position = before.len();
        // The last token is only predicted; it need not be evaluated.
        let inputs = scored[..scored.len() - 1].chunks(batch);
        for (inputs, targets) in inputs.zip(scored[1..].chunks(batch)) {
            let logits = session.prefill_each(inputs)?;
            for (logits, targets) in logits.chunks(ROWS * vocab_size).zip(targets.chunks(ROWS)) {
                let losses = pool.install(|| uses.losses(logits, targets, (chunk, position)))?;
                losses.into_iter().for_each(|loss| all.add(loss));
                position += targets.len();
            }
        }
        if progress(chunk + 1, &all).is_break() {
            return Err(PerplexityError::Interrupted { done: chunk + 1, chunks: text.chunks() });
        }
    }
    Ok(all)
}

impl Uses {
    /// To be saved, or compared, or both, or neither.
    #[must_use]
    pub fn new(save: Option<Writer>, compare: Option<Reader>) -> Self {
        Self { save, compare: compare.map(|file| (file, Divergence::default())), rows: Vec::new() }
    }

    /// The negative log-likelihoods of the targets of rows of logits; the first row is that of the chunk and
    /// position `at`.
    fn losses(
        &mut self,
        logits: &[f32],
        targets: &[u32],
        at: (usize, usize),
    ) -> Result<Vec<f64>, PerplexityError> {
        let (chunk, start) = at;
        let losses = if self.save.is_none() && self.compare.is_none() {
            losses(logits, targets)
        } else {
            self.rows.resize(logits.len(), f32::NAN);
            losses_and_rows(logits, targets, &mut self.rows)
        };
        if let Some(row) = losses.iter().position(Option::is_none) {
            return Err(PerplexityError::NotFinite { chunk, position: start + row });
        }
        if let Some(file) = &mut self.save {
            file.write(&self.rows)?;
        }
        if let Some((file, divergence)) = &mut self.compare {
            let base = file.read(targets.len())?;
            let compared = divergence.add(base, &self.rows, targets, at);
            compared.map_err(|(chunk, position)| file.not_probabilities(chunk, position))?;
        }
        Ok(losses.into_iter().flatten().collect())
    }
}

/// The negative log-likelihood of each row's target; `None` where the logits are not finite.
fn losses(logits: &[f32], targets: &[u32]) -> Vec<Option<f64>> {
    let rows = logits.par_chunks_exact(logits.len() / targets.len()).zip(targets);
    rows.map(|(row, &target)| Some(normalizer(row)? - f64::from(row[target as usize]))).collect()
}

/// As [`losses`], and the log-probabilities of every token into `rows`.
fn losses_and_rows(logits: &[f32], targets: &[u32], rows: &mut [f32]) -> Vec<Option<f64>> {
    let width = logits.len() / targets.len();
    let all = logits.par_chunks_exact(width).zip(rows.par_chunks_exact_mut(width)).zip(targets);
    all.map(|((logits, row), &target)| {
        let normalizer = log_probabilities(logits, row)?;
        Some(normalizer - f64::from(logits[target as usize]))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn a_text_is_cut_as_llama_cpp_cuts_it() {
        let text = |len: u32, context, bos, limit| Text::new((0..len).collect(), context, bos, limit);
        assert_eq!(text(9, 4, None, None).unwrap().tokens(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(text(8, 4, Some(99), None).unwrap().tokens(), [99, 1, 2, 3, 99, 5, 6, 7]);
        let one = text(12, 4, Some(99), Some(1)).unwrap();
        assert_eq!((one.tokens(), one.chunks(), one.scored()), (&[99, 1, 2, 3][..], 1, 1));
        assert_eq!([3, 4, 5, 511, 512].map(scored), [1, 1, 2, 255, 255]);
        let message = text(3, 4, None, None).unwrap_err().to_string();
        assert!(message.contains("3 tokens") && message.contains("chunk of 4"), "{message}");
    }
}
