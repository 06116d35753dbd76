//! From a model's path, or its spec, to what commands need of it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;

use super::synth;
use crate::gguf::Gguf;
use crate::model::Model;
use crate::synth::{DEFAULT_SEED, Spec, Synth};
use crate::tokenizer::Tokenizer;

/// Where a model comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// This file.
    File(PathBuf),
    /// Random weights, made in memory.
    Synth(Spec),
}

/// An open file, or what is like one in memory.
pub(super) struct ModelFile {
    /// Its content.
    pub(super) gguf: Arc<Gguf>,
}

impl ModelFile {
    /// Opens a file, or makes the model.
    ///
    /// # Errors
    /// When it cannot be read or is no GGUF file; when there is no memory for it.
    pub(super) fn open(source: Source) -> anyhow::Result<Self> {
        let gguf = match source {
            Source::File(path) => Gguf::open(&path)?,
            Source::Synth(spec) => {
                let model = Synth::new(spec, DEFAULT_SEED);
                model.gguf(&mut synth::progress("making", model.file_bytes()))?
            }
        };
        Ok(Self { gguf: Arc::new(gguf) })
    }

    /// The path, or what stands for it, to print.
    pub(super) fn name(&self) -> String {
        self.gguf.path().display().to_string()
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
