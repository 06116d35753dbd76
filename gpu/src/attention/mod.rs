//! Attention.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod fa_prefill_f16kv;
mod geometry;
mod place;
mod problem;
#[cfg(test)]
mod tests;

pub use fa_prefill_f16kv::FaPrefillF16kv;
pub use geometry::Geometry;
pub use place::KvPlace;
pub(crate) use place::LayerPlace;
pub use problem::{Attention, Scaling, Sight};
