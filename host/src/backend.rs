//! What runs a model: the interface between a session and a device.

use crate::model::Config;

/// What runs the decoder for a number of sequences, each with a KV cache of its own.
///
/// The caller guarantees that token ids are below `vocab_size`, that sequences are among the allocated
/// ones and that positions are within the allocated context and follow on what the cache has.
pub trait Backend: Send {
    /// The model's description.
    fn config(&self) -> &Config;

    /// A short description for people: device, instruction set, threads, mode.
    fn description(&self) -> String;

    /// The device's name on the command line: `cpu`, `cuda:0`.
    fn device(&self) -> String;

    /// Prompt tokens that are best evaluated in one call.
    fn prompt_rows(&self) -> usize {
        512
    }

    /// Threads of the CPU that work in it.
    fn threads(&self) -> usize;

    /// Allocates the KV caches of `sequences` sequences, at least 1, of `context` positions each, in place
    /// of earlier ones.
    ///
    /// # Errors
    /// [`BackendError`] if there is not the memory for it.
    fn allocate(&mut self, context: usize, sequences: usize) -> Result<(), BackendError>;

    /// Evaluates prompt tokens of one sequence at the positions `start..`, at least one. Returns a row of
    /// logits, `vocab_size` long, for each position that `wanted` names, one behind the other.
    ///
    /// However a prompt is cut into calls, its logits are the same to the bit.
    ///
    /// # Errors
    /// [`BackendError`] if the device fails.
    fn prefill(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        start: usize,
        wanted: Wanted,
    ) -> Result<&[f32], BackendError>;

    /// Evaluates one generated token of each of some sequences, none of them twice and at least one; rows
    /// of logits in their order. A row is the same to the bit whatever stands beside it.
    ///
    /// # Errors
    /// [`BackendError`] if the device fails.
    fn decode(&mut self, steps: &[Step]) -> Result<&[f32], BackendError>;

    /// As [`decode`](Self::decode), and returns only the token with the largest logit of each row, of equal
    /// ones the lowest; [`NO_TOKEN`](gpu::sampling::NO_TOKEN) where one is NaN or +∞. Logits of another device
    /// stay there.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn decode_greedy(&mut self, steps: &[Step]) -> Result<Vec<u32>, BackendError> {
        let vocab_size = self.config().vocab_size;
        Ok(self.decode(steps)?.chunks_exact(vocab_size).map(largest).collect())
    }
}

/// Which of a prompt's logits are wanted: the product with the output matrix is spared for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None.
    Nothing,
    /// Those after the last token.
    Last,
    /// Those after every token.
    Each,
}

impl Wanted {
    /// How many rows of logits that is of `tokens` tokens.
    #[must_use]
    pub const fn rows(self, tokens: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Last => 1,
            Self::Each => tokens,
        }
    }
}

/// A token to evaluate in a step of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whose it is.
    pub sequence: usize,
    /// Its id.
    pub token: u32,
    /// Its position.
    pub position: usize,
}

/// The token with the largest logit, see [`Backend::decode_greedy`].
fn largest(logits: &[f32]) -> u32 {
    // Written so that a NaN is not usable.
    if !logits.iter().all(|&logit| logit < f32::INFINITY) {
        return gpu::sampling::NO_TOKEN;
    }
    let best = |best: (u32, f32), next: (u32, f32)| if next.1 > best.1 { next } else { best };
    (0..).zip(logits.iter().copied()).reduce(best).map_or(0, |(token, _)| token)
}

/// A backend's failure.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The KV cache does not fit.
    #[error(
        "{} of {context} positions needs {needed_mib} MiB for its KV cache, which the system refuses; \
         use a smaller one (--ctx)",
        if *sequences == 1 { "a context".to_owned() } else { format!("{sequences} contexts") }
    )]
    OutOfMemory {
        /// Positions asked for.
        context: usize,
        /// Sequences of so many.
        sequences: usize,
        /// MiB that they need.
        needed_mib: u128,
    },
    /// Something does not fit into a device's memory.
    #[error("{device}: {what} needs {} MiB, {} MiB are free: {remedy}", needed.div_ceil(1 << 20), free >> 20)]
    DeviceMemory {
        /// The device's name.
        device: String,
        /// What does not fit.
        what: String,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// The device has no kernels for the model.
    #[error("{what}: the GPU's kernels cannot run this model; use --device cpu")]
    Unsupported {
        /// What of the model there is no kernel for.
        what: String,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] crate::cuda::Error),
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
