//! Probes: kernels that ask the machine how it is wired.
//!
//! They compute nothing of use. Their answers are held against [`fragment`](crate::fragment)
//! and against what a launch asked for.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod approximations;
mod loads;
mod maps;
mod products;
mod shared;
mod warpgroup;

pub use approximations::ProbeApproximations;
pub use loads::{Dump, ProbeLoads};
pub use maps::{ProbeMapBf16, ProbeMapF16, ProbeMapS8, Questions};
pub use products::{ProbeMmaF16, ProbeMmaS8, ProbeWmma};
pub use shared::ProbeShared;
pub use warpgroup::ProbeMapWgmma;
