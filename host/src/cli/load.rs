//! From the path of a model to what commands need of it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;

use crate::gguf::Gguf;
use crate::model::Model;
use crate::tokenizer::Tokenizer;

/// An open file.
pub(super) struct ModelFile {
    path: PathBuf,
    /// Its content.
    pub(super) gguf: Arc<Gguf>,
}

impl ModelFile {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read or is no GGUF file.
    pub(super) fn open(path: PathBuf) -> anyhow::Result<Self> {
        let gguf = Arc::new(Gguf::open(&path)?);
        Ok(Self { path, gguf })
    }

    /// The path, to print.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The vocabulary.
    ///
    /// # Errors
    /// When there is none that can be used.
    pub(super) fn tokenizer(&self) -> anyhow::Result<Tokenizer> {
        Tokenizer::from_gguf(&self.gguf).with_context(|| self.name())
    }

    /// The weights.
    ///
    /// # Errors
    /// When they are not those of a model that can be run.
    pub(super) fn model(&self) -> anyhow::Result<Arc<Model>> {
        Ok(Arc::new(Model::load(Arc::clone(&self.gguf))?))
    }
}
