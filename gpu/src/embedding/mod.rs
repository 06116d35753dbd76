//! Embedding: from token ids to rows.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod embed;

pub use embed::{Embed, Table};
