//! Normalization.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod rms_norm;

pub use rms_norm::RmsNorm;
