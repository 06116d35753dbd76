//! Sequences on a backend: their KV caches, prefill and decode.

use std::ops::ControlFlow;

use gpu::sampling::NO_TOKEN;

pub use crate::backend::{Backend, BackendError, Step, Wanted};
use crate::model::Config;

/// Why a session did not evaluate its tokens.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// There were no tokens.
    #[error("there are no tokens to evaluate")]
    Empty,
    /// The context is too short for the tokens.
    #[error("{needed} tokens do not fit into the context of {context}; ask for a larger one (--ctx)")]
    ContextFull {
        /// Positions needed.
        needed: usize,
        /// Positions there are.
        context: usize,
    },
    /// An id is no token of the model.
    #[error("token {id} is not in the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Tokens in the vocabulary.
        vocab_size: usize,
    },
    /// The session has fewer sequences.
    #[error("there is no sequence {sequence}: the session has {sequences}, counted from 0")]
    NoSuchSequence {
        /// The one that was named.
        sequence: usize,
        /// How many there are.
        sequences: usize,
    },
    /// A step has two tokens of one sequence.
    #[error("a step has two tokens of sequence {sequence}: the second needs the first's result")]
    Twice {
        /// The sequence.
        sequence: usize,
    },
    /// No token can be chosen.
    #[error("a logit after sequence {sequence} is NaN or infinite: the model's output is not usable")]
    Unusable {
        /// The sequence.
        sequence: usize,
    },
    /// The caller's `progress` asked to stop.
    #[error("interrupted after {done} of {total} tokens")]
    Interrupted {
        /// Tokens evaluated.
        done: usize,
        /// Tokens asked for.
        total: usize,
    },
}

/// Some sequences: which positions of each are filled, and the backend that holds them. What names no
/// sequence is about the first.
pub struct Session {
    backend: Box<dyn Backend>,
    context: usize,
    positions: Vec<usize>,
}

impl Session {
    /// A session of one sequence with room for `context` positions.
    ///
    /// # Errors
    /// [`BackendError`] if the KV cache does not fit into memory.
    pub fn new(backend: Box<dyn Backend>, context: usize) -> Result<Self, BackendError> {
        Self::with_sequences(backend, context, 1)
    }

    /// A session of `sequences` sequences (at least one) with room for `context` positions each.
    ///
    /// # Errors
    /// [`BackendError`] if the KV caches do not fit into memory.
    pub fn with_sequences(
        mut backend: Box<dyn Backend>,
        context: usize,
        sequences: usize,
    ) -> Result<Self, BackendError> {
        let sequences = sequences.max(1);
        backend.allocate(context, sequences)?;
        Ok(Self { backend, context, positions: vec![0; sequences] })
    }

    /// Makes room for another number of sequences, at least one, of as many positions. All are empty then.
    ///
    /// # Errors
    /// [`BackendError`] if the KV caches do not fit into memory; then the session holds none.
    pub fn resize(&mut self, sequences: usize) -> Result<(), BackendError> {
        let sequences = sequences.max(1);
        self.positions.clear();
        self.backend.allocate(self.context, sequences)?;
        self.positions.resize(sequences, 0);
        Ok(())
    }

    /// The model's description.
    #[must_use]
    pub fn config(&self) -> &Config {
        self.backend.config()
    }

    /// The backend's description, for people.
    #[must_use]
    pub fn description(&self) -> String {
        self.backend.description()
    }

    /// The device's name on the command line.
    #[must_use]
    pub fn device(&self) -> String {
        self.backend.device()
    }

    /// Prompt tokens that are best evaluated in one call.
    #[must_use]
    pub fn prompt_rows(&self) -> usize {
        self.backend.prompt_rows()
    }

    /// Threads of the CPU that the backend works with.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.backend.threads()
    }

    /// Sequences.
    #[must_use]
    pub fn sequences(&self) -> usize {
        self.positions.len()
    }

    /// Positions that are filled.
    #[must_use]
    pub fn position(&self) -> usize {
        self.positions[0]
    }

    /// Positions that each sequence has room for.
    #[must_use]
    pub fn context(&self) -> usize {
        self.context
    }

    /// Forgets all positions from `position` on, of every sequence.
    pub fn rewind(&mut self, position: usize) {
        self.positions.iter_mut().for_each(|own| *own = position.min(*own));
    }

    /// Evaluates prompt tokens in chunks of `batch` and returns the logits after the last one.
    /// `progress` is told the tokens done and in all before the first and after each chunk, and
    /// may stop the work.
    ///
    /// # Errors
    /// [`SessionError`]; on [`SessionError::Interrupted`] the chunks done so far stay.
    pub fn prefill(
        &mut self,
        tokens: &[u32],
        batch: usize,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<&[f32], SessionError> {
        self.prefill_sequence(0, tokens, batch, progress)
    }

    /// As [`prefill`](Self::prefill), for one of several sequences.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    pub fn prefill_sequence(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        batch: usize,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<&[f32], SessionError> {
        self.check(sequence, tokens)?;
        let (total, batch) = (tokens.len(), batch.max(1));
        let mut ask = |done| match progress(done, total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(SessionError::Interrupted { done, total }),
        };
        let (before, last) = tokens.split_at((total - 1) / batch * batch);
        let mut done = 0;
        for chunk in before.chunks(batch) {
            ask(done)?;
            self.backend.prefill(sequence, chunk, self.positions[sequence], Wanted::Nothing)?;
            // Only now: after a failure the session ends where the cache does.
            self.positions[sequence] += chunk.len();
            done += chunk.len();
        }
        ask(done)?;
        let logits = self.backend.prefill(sequence, last, self.positions[sequence], Wanted::Last)?;
        self.positions[sequence] += last.len();
        let _ = progress(total, total);
        Ok(logits)
    }

    /// Evaluates prompt tokens of the first sequence in one chunk and returns the logits after each.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn prefill_each(&mut self, tokens: &[u32]) -> Result<&[f32], SessionError> {
        self.check(0, tokens)?;
        let logits = self.backend.prefill(0, tokens, self.positions[0], Wanted::Each)?;
        self.positions[0] += tokens.len();
        Ok(logits)
    }

    /// Evaluates one generated token and returns the logits after it.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn decode(&mut self, token: u32) -> Result<&[f32], SessionError> {
        self.decode_batch(&[(0, token)])
    }

    /// Evaluates one generated token and returns the one with the largest logit after it, see
    /// [`Backend::decode_greedy`].
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn decode_greedy(&mut self, token: u32) -> Result<u32, SessionError> {
        Ok(self.decode_batch_greedy(&[(0, token)])?[0])
    }

    /// Evaluates one generated token, given as sequence and id, of each of some sequences, and returns
    /// rows of logits in their order.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn decode_batch(&mut self, tokens: &[(usize, u32)]) -> Result<&[f32], SessionError> {
        let steps = self.steps(tokens)?;
        let logits = self.backend.decode(&steps)?;
        steps.iter().for_each(|step| self.positions[step.sequence] += 1);
        Ok(logits)
    }

    /// As [`decode_batch`](Self::decode_batch), and returns only the tokens with the largest logits.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn decode_batch_greedy(&mut self, tokens: &[(usize, u32)]) -> Result<Vec<u32>, SessionError> {
        let steps = self.steps(tokens)?;
        let best = self.backend.decode_greedy(&steps)?;
        steps.iter().for_each(|step| self.positions[step.sequence] += 1);
        match steps.iter().zip(&best).find(|&(_, &token)| token == NO_TOKEN) {
            Some((&Step { sequence, .. }, _)) => Err(SessionError::Unusable { sequence }),
            None => Ok(best),
        }
    }

    fn steps(&self, tokens: &[(usize, u32)]) -> Result<Vec<Step>, SessionError> {
        if tokens.is_empty() {
            return Err(SessionError::Empty);
        }
        let mut steps: Vec<Step> = Vec::with_capacity(tokens.len());
        for &(sequence, token) in tokens {
            self.check(sequence, &[token])?;
            if steps.iter().any(|step| step.sequence == sequence) {
                return Err(SessionError::Twice { sequence });
            }
            steps.push(Step { sequence, token, position: self.positions[sequence] });
        }
        Ok(steps)
    }

    fn check(&self, sequence: usize, tokens: &[u32]) -> Result<(), SessionError> {
        let (sequences, vocab_size) = (self.sequences(), self.config().vocab_size);
        let Some(position) = self.positions.get(sequence) else {
            return Err(SessionError::NoSuchSequence { sequence, sequences });
        };
        if tokens.is_empty() {
            return Err(SessionError::Empty);
        }
        if let Some(&id) = tokens.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(SessionError::UnknownToken { id, vocab_size });
        }
        let needed = position + tokens.len();
        if needed > self.context {
            return Err(SessionError::ContextFull { needed, context: self.context });
        }
        Ok(())
    }
}
