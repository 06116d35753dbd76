//! One decoder, described by data.
//!
//! A [`Model`] is a [`Config`] (what to compute) and the tensors by their role (with what).
//! The architectures differ in the configuration and in which optional tensors are there
//! (biases, query and key norms, norms after a layer), never in code.

mod config;
mod rope;
mod weights;

use std::path::PathBuf;
use std::sync::Arc;

pub use config::{Activation, Architecture, Config, SlidingWindow};
pub use rope::{Rope, RopeOrder, RopeScaling, RopeTable};
pub use weights::{Layer, Matrix};

use gpu::quant::Format;

use crate::gguf::{Gguf, GgufError};
use weights::Tensors;

/// Why a file is not a model that the decoder runs.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file itself is broken, or a key has the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The decoder does not know the architecture.
    #[error(
        "{}: the architecture `{name}` is not supported; the supported ones are {}",
        path.display(), Architecture::ALL.map(Architecture::name).join(", ")
    )]
    UnknownArchitecture {
        /// The model's file.
        path: PathBuf,
        /// What the file says.
        name: String,
    },
    /// A key that the architecture needs is missing.
    #[error("{}: the metadata key `{key}` is missing; the file is not a complete model", path.display())]
    MissingKey {
        /// The model's file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A key has a value that the decoder cannot run.
    #[error("{}: `{key}` is {value}; {why}", path.display())]
    InvalidValue {
        /// The model's file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is expected.
        why: String,
    },
    /// A tensor that the architecture needs is missing.
    #[error("{}: the tensor `{tensor}` is missing; the file is not a complete model", path.display())]
    MissingTensor {
        /// The model's file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A tensor has another shape than the configuration asks for.
    #[error("{}: the tensor `{tensor}` has the shape {found:?}; the metadata asks for {expected:?}", path.display())]
    Shape {
        /// The model's file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its dimensions, row length first.
        found: Vec<u64>,
        /// The dimensions that the configuration asks for.
        expected: Vec<u64>,
    },
    /// The file holds a tensor that the decoder has no use for.
    #[error("{}: the tensor `{tensor}` is none that the decoder uses; the model would not give its own text without it", path.display())]
    UnknownTensor {
        /// The model's file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A norm or a bias is stored in blocks.
    #[error("{}: the tensor `{tensor}` is stored as {format}; norms and biases must be F32, F16 or BF16", path.display())]
    VectorFormat {
        /// The model's file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// How it is stored.
        format: Format,
    },
}

/// A decoder's configuration and weights. The weights stay in the mapped file.
#[derive(Clone, Debug)]
pub struct Model {
    gguf: Arc<Gguf>,
    config: Config,
    embedding: Matrix,
    output: Matrix,
    output_norm: Vec<f32>,
    rope_factors: Option<Vec<f32>>,
    layers: Vec<Layer>,
}

impl Model {
    /// Finds the tensors of the decoder that the file's metadata describes and checks their
    /// shapes; a tensor without a role is refused. Reads only the small ones (norms, biases);
    /// the matrices stay where they are.
    ///
    /// # Errors
    /// See [`ModelError`].
    pub fn load(gguf: Arc<Gguf>) -> Result<Self, ModelError> {
        let config = Config::from_gguf(&gguf)?;
        let tensors = Tensors::new(&gguf);
        let (width, vocab) = (config.width, config.vocab_size);
        let embedding = tensors.matrix("token_embd.weight", width, vocab)?;
        let output =
            tensors.optional_matrix("output.weight", width, vocab)?.unwrap_or_else(|| embedding.clone());
        let output_norm = tensors.vector("output_norm.weight", width)?;
        let rope_factors = tensors.optional_vector("rope_freqs.weight", config.rope.dims / 2)?;
        // A layer is nine tensors at least, so a count that the file cannot hold fails at
        // its first missing tensor; nothing is reserved ahead.
        let mut layers = Vec::new();
        for index in 0..config.layers {
            layers.push(Layer::load(&tensors, &config, index)?);
        }
        tensors.check_all_found()?;
        Ok(Self { config, embedding, output, output_norm, rope_factors, layers, gguf })
    }

    /// The file.
    #[must_use]
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// What to compute.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Token embeddings: `vocab_size` rows of `width`.
    #[must_use]
    pub fn embedding(&self) -> &Matrix {
        &self.embedding
    }

    /// The output projection: `vocab_size` rows of `width`; the embeddings where it is tied.
    #[must_use]
    pub fn output(&self) -> &Matrix {
        &self.output
    }

    /// Weights of the last norm, `width` long.
    #[must_use]
    pub fn output_norm(&self) -> &[f32] {
        &self.output_norm
    }

    /// Divisors of the rotary embedding's frequencies, one per pair.
    #[must_use]
    pub fn rope_factors(&self) -> Option<&[f32]> {
        self.rope_factors.as_deref()
    }

    /// The decoder layers.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// A matrix's bytes in the file: its rows, one after the other.
    #[must_use]
    pub fn bytes(&self, matrix: &Matrix) -> &[u8] {
        self.gguf.data(&matrix.0)
    }

    /// Weights of the model, in elements; a tied output counts once.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.gguf.tensors().iter().map(|tensor| tensor.elements() as u64).sum()
    }

    /// Bytes of all tensors in the file.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.gguf.tensors().iter().map(|tensor| tensor.byte_len() as u64).sum()
    }
}
