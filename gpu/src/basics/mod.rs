//! The first rungs: kernels that each show one idea of the machine.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod block_sum;
mod transpose;
mod vector_add;

pub use block_sum::BlockSum;
pub use transpose::{Transpose, TransposeGeometry};
pub use vector_add::VectorAdd;
