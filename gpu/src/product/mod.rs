//! Matrix products.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod matmul_f16;

pub use matmul_f16::{MatmulF16, MatmulGeometry};
