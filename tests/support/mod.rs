//! What several integration tests share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod command;
pub(crate) mod eight_bit;
pub(crate) mod error;
pub(crate) mod gguf;
pub(crate) mod loaded;
pub(crate) mod models;
pub(crate) mod random;
pub(crate) mod reference;
pub(crate) mod speller;
pub(crate) mod tiny;
pub(crate) mod vocabulary;
