//! lanemap's host side: everything that runs on the CPU.
//!
//! Layers, each only above the one before it: [`gguf`] (files), [`model`] (one decoder
//! described by data), [`cpu`] (the backend), [`session`] (KV cache, prefill, decode),
//! [`sampling`] and [`tokenizer`], [`cli`].

pub mod bench;
pub mod cli;
pub mod cpu;
pub mod cuda;
pub mod gguf;
pub mod model;
pub mod ptx;
pub mod pull;
pub mod quantize;
pub mod sampling;
pub mod session;
pub mod tokenizer;

// Tests of both kinds share a file, which names this crate as the integration tests see it.
#[cfg(test)]
extern crate self as lanemap;
#[cfg(test)]
#[path = "../../tests/support/random.rs"]
#[allow(dead_code, reason = "unit tests use a part of it")]
mod random;
