//! Position: rotary embedding, and the way of keys and values into the cache.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod rope_kv;

pub use rope_kv::{HeadRows, RopeKv};
