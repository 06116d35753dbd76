//! Attention.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod attn_combine;
mod attn_decode;
mod attn_naive;
mod cache;
mod chunked;
mod decode_task;
mod fa_prefill_f16kv;
mod fa_prefill_f16kv_shared;
mod fa_prefill_f16kv_wgmma;
mod geometry;
mod geometry_shared;
mod own_heads;
mod problem;
#[cfg(test)]
mod tests;

pub use attn_combine::AttnCombine;
pub use attn_decode::{AttnDecode, MOST_GROUP};
pub use attn_naive::AttnNaive;
pub use cache::{KvCache, KvPlace};
pub use chunked::{CHUNK, Chunked};
pub use fa_prefill_f16kv::FaPrefillF16kv;
pub use fa_prefill_f16kv_shared::FaPrefillF16kvShared;
pub use fa_prefill_f16kv_wgmma::FaPrefillF16kvWgmma;
pub use geometry::Geometry;
pub use geometry_shared::SharedGeometry;
pub use problem::{Attention, Scaling, Sight};
