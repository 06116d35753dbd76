//! Rows of activations: what they are written as between kernels, and what happens to them there.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod rows;

pub use rows::{Kind, RowsOut, VECTOR};
