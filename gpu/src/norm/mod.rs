//! Normalization.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod residual_norm;
mod rms_norm;
mod total;

pub use residual_norm::ResidualNorm;
pub use rms_norm::RmsNorm;
pub(crate) use total::scale;
