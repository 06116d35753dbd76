//! From logits to tokens.

#![allow(unsafe_code, reason = "a kernel's body is unsafe: it trusts its launch")]

mod argmax;
mod key;
mod top_k;

pub use argmax::{Argmax, ArgmaxParts, NO_TOKEN};
pub use top_k::TopK;
