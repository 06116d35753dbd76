//! lanemap's host side: everything that runs on the CPU.
//!
//! Layers, each only above the one before it: [`gguf`] (files), [`model`] (one decoder
//! described by data), [`cpu`] (the backend), [`session`] (KV cache, prefill, decode),
//! [`sampling`] and [`tokenizer`], [`cli`].

pub mod bench;
pub mod cli;
pub mod cpu;
pub mod gguf;
pub mod model;
pub mod pull;
pub mod quantize;
pub mod sampling;
pub mod session;
pub mod tokenizer;
