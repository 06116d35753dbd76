//! lanemap's host side: everything that runs on the CPU.
//!
//! Layers, each above those named before it: [`gguf`] (files), [`tokenizer`] and [`model`] (one
//! decoder described by data), [`backend`] (what runs a model), [`cpu`], [`session`] (prefill and
//! decode of some sequences), [`sampling`], [`mod@bench`], [`profile`], [`perplexity`], [`gate`] (verdicts on
//! all of it), [`cli`]. Beside them [`pull`] (the demo
//! models), [`synth`] (models of random weights), [`quantize`] (rows of f32 into blocks, for tests and for
//! files this project makes), [`ptx`] (the kernels as they were compiled) and [`cuda`] (where they run: a GPU,
//! or the emulator).

pub mod backend;
pub mod bench;
pub mod cli;
pub mod cpu;
pub mod cuda;
pub mod experiment;
mod folder;
pub mod gate;
pub mod gguf;
mod hex;
pub mod model;
pub mod perplexity;
pub mod profile;
pub mod ptx;
pub mod pull;
pub mod quantize;
pub mod sampling;
pub mod session;
pub mod synth;
pub mod tokenizer;

// Tests of both kinds share files, which names this crate as the integration tests see it.
#[cfg(test)]
extern crate self as lanemap;
#[cfg(test)]
#[path = "../../tests/support/eight_bit.rs"]
mod eight_bit;
#[cfg(test)]
#[path = "../../tests/support/vocabulary.rs"]
mod vocabulary;
