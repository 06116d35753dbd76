//! Position: rotary embedding, and the way of keys and values into the cache.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod heads;
mod rope_kv;

pub(crate) use heads::{Head, Pairs};
pub use heads::{HeadRows, Turning};
pub use rope_kv::RopeKv;
