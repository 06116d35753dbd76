//! Attention.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod attn_combine;
mod attn_decode;
mod cache;
mod fa_prefill_f16kv;
mod geometry;
mod problem;
#[cfg(test)]
mod tests;

pub use attn_combine::AttnCombine;
pub use attn_decode::{AttnDecode, CHUNK, Chunked, MOST_GROUP};
pub use cache::{KvCache, KvPlace};
pub use fa_prefill_f16kv::FaPrefillF16kv;
pub use geometry::Geometry;
pub use problem::{Attention, Scaling, Sight};
