//! Tiny models in the library's hands: loaded, with sessions, and their logits' bits.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::ops::ControlFlow;
use std::sync::Arc;

use lanemap::cpu::{Arithmetic, CpuBackend, CpuOptions};
use lanemap::gguf::Gguf;
use lanemap::model::Model;
use lanemap::session::Session;

use super::gguf::Folder;
use super::tiny::Tiny;

/// Exact and 8-bit.
pub(crate) const MODES: [bool; 2] = [true, false];

/// A model in a file, and the file's folder.
pub(crate) struct Loaded {
    pub(crate) model: Arc<Model>,
    _folder: Folder,
}

impl Loaded {
    pub(crate) fn new(tiny: &Tiny) -> Self {
        let folder = Folder::new();
        let gguf = Gguf::open(&tiny.write(&folder)).unwrap();
        Self { model: Arc::new(Model::load(Arc::new(gguf)).unwrap()), _folder: folder }
    }

    pub(crate) fn session(&self, exact: bool, threads: usize) -> Session {
        self.sessions(exact, threads, 1)
    }

    pub(crate) fn sessions(&self, exact: bool, threads: usize, sequences: usize) -> Session {
        self.with(CpuOptions { threads, arithmetic: Arithmetic::exact_if(exact) }, sequences)
    }

    pub(crate) fn with(&self, options: CpuOptions, sequences: usize) -> Session {
        let backend = CpuBackend::new(Arc::clone(&self.model), options).unwrap();
        Session::with_sequences(Box::new(backend), 128, sequences).unwrap()
    }
}

pub(crate) fn prefill(session: &mut Session, tokens: &[u32], batch: usize) -> Vec<f32> {
    session.prefill(tokens, batch, &mut |_, _| ControlFlow::Continue(())).unwrap().to_vec()
}

/// The logits after each token, one token at a time.
pub(crate) fn decode(session: &mut Session, tokens: &[u32]) -> Vec<Vec<f32>> {
    tokens.iter().map(|&token| session.decode(token).unwrap().to_vec()).collect()
}

/// Bit patterns, so that a comparison also tells the sign of zero.
pub(crate) fn bits(logits: &[f32]) -> Vec<u32> {
    assert!(logits.iter().all(|x| x.is_finite()), "a logit is not finite");
    logits.iter().map(|x| x.to_bits()).collect()
}
