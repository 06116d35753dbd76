//! What runs a model: the interface between a session and a device.

use crate::model::Config;

/// What runs the decoder for one sequence.
pub trait Backend: Send {
    /// The model's description.
    fn config(&self) -> &Config;

    /// A short description for people: device, instruction set, threads, mode.
    fn description(&self) -> String;

    /// Allocates the KV cache of `context` positions, in place of an earlier one.
    ///
    /// # Errors
    /// [`BackendError`] if there is not the memory for it.
    fn allocate(&mut self, context: usize) -> Result<(), BackendError>;

    /// Evaluates `tokens` at the positions `start..`, which have all positions before them in
    /// the cache. With `logits` it returns those after the last token, `vocab_size` long;
    /// without, the product with the output matrix is spared and the slice is empty.
    ///
    /// The caller guarantees that the ids are below `vocab_size` and the positions within the
    /// allocated context.
    ///
    /// # Errors
    /// [`BackendError`] if the device fails.
    fn forward(&mut self, tokens: &[u32], start: usize, logits: bool) -> Result<&[f32], BackendError>;
}

/// A backend's failure.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The KV cache does not fit.
    #[error(
        "a context of {context} positions needs {needed_mib} MiB for its KV cache, which the system refuses; \
         use a smaller one (--ctx)"
    )]
    OutOfMemory {
        /// Positions asked for.
        context: usize,
        /// MiB that they need.
        needed_mib: u128,
    },
    /// The environment names an instruction set that there is none of.
    #[error("LANEMAP_CPU={name}: this processor has {}; use one of these, or leave it unset", available.join(", "))]
    InstructionSet {
        /// What it names.
        name: String,
        /// The names of the sets that there are.
        available: Vec<&'static str>,
    },
    /// Threads could not be started.
    #[error("{threads} threads could not be started: {reason}; ask for fewer (--threads)")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
}
