//! Matrix products, and the rows that they take.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

pub mod activations;
mod convert;
mod matmul_f16;

pub use activations::{Activations, AsF16, AsF32, AsQ8, Q8Row};
pub use convert::Convert;
pub use matmul_f16::{MatmulF16, MatmulGeometry};
