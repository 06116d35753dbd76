//! Probes: kernels that ask the machine how it is wired.
//!
//! They compute nothing of use. Their answers are held against [`fragment`](crate::fragment)
//! and against what a launch asked for.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod loads;
mod products;
mod shared;

pub use loads::{Dump, ProbeLoads};
pub use products::{ProbeMmaF16, ProbeMmaS8, ProbeWmma};
pub use shared::ProbeShared;
