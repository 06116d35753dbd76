//! Activation functions.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod gated;

pub(crate) use gated::gated;
pub use gated::{Gate, Gated};
