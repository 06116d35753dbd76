//! Matrix products, and the rows that they take.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

pub mod activations;
pub mod convert;
mod matmul_f16;
pub mod matvec;

pub use activations::{Activations, AsF16, AsF32, AsQ8, Q8Row};
pub use convert::Convert;
pub use matmul_f16::{MatmulF16, MatmulGeometry};
pub use matvec::{Matvec, MatvecGeometry};
