//! Seeded random numbers and blocks: those of the gates.

#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub(crate) use lanemap::gate::random::{Random, normal, normals, random_blocks, uniform};
