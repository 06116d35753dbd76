//! A sequence on a backend: its KV cache, prefill and decode.

use std::ops::ControlFlow;

pub use crate::backend::{Backend, BackendError};
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
    /// The caller's `progress` asked to stop.
    #[error("interrupted after {done} of {total} tokens")]
    Interrupted {
        /// Tokens evaluated.
        done: usize,
        /// Tokens asked for.
        total: usize,
    },
}

/// One sequence: which positions are filled, and the backend that holds them.
pub struct Session {
    backend: Box<dyn Backend>,
    context: usize,
    position: usize,
}

impl Session {
    /// A session with room for `context` positions.
    ///
    /// # Errors
    /// [`BackendError`] if the KV cache does not fit into memory.
    pub fn new(mut backend: Box<dyn Backend>, context: usize) -> Result<Self, BackendError> {
        backend.allocate(context)?;
        Ok(Self { backend, context, position: 0 })
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

    /// Positions that are filled.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Positions there is room for.
    #[must_use]
    pub fn context(&self) -> usize {
        self.context
    }

    /// Forgets all positions from `position` on.
    pub fn rewind(&mut self, position: usize) {
        self.position = self.position.min(position);
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
        self.check(tokens)?;
        let (total, batch) = (tokens.len(), batch.max(1));
        let mut ask = |done| match progress(done, total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(SessionError::Interrupted { done, total }),
        };
        let (before, last) = tokens.split_at((total - 1) / batch * batch);
        let mut done = 0;
        for chunk in before.chunks(batch) {
            ask(done)?;
            self.backend.forward(chunk, self.position, false)?;
            // Only now: after a failure the session ends where the cache does.
            self.position += chunk.len();
            done += chunk.len();
        }
        ask(done)?;
        let logits = self.backend.forward(last, self.position, true)?;
        self.position += last.len();
        let _ = progress(total, total);
        Ok(logits)
    }

    /// Evaluates one generated token and returns the logits after it.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn decode(&mut self, token: u32) -> Result<&[f32], SessionError> {
        self.check(&[token])?;
        let logits = self.backend.forward(&[token], self.position, true)?;
        self.position += 1;
        Ok(logits)
    }

    fn check(&self, tokens: &[u32]) -> Result<(), SessionError> {
        let vocab_size = self.config().vocab_size;
        if tokens.is_empty() {
            return Err(SessionError::Empty);
        }
        if let Some(&id) = tokens.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(SessionError::UnknownToken { id, vocab_size });
        }
        let needed = self.position + tokens.len();
        if needed > self.context {
            return Err(SessionError::ContextFull { needed, context: self.context });
        }
        Ok(())
    }
}
