//! Gates: verdicts on the kernels, before anybody measures how fast they are.
//!
//! | file | what |
//! | --- | --- |
//! | `parity` | every kernel but the probes against references in f64 |
//! | `tolerance` | whole models against the CPU's exact mode |
//! | `identity` | greedy streams against recorded ones |
//! | `compare` | logits of two runs, and what becomes of the choices |
//! | `passage` | the text that models are judged on |
//! | `bounds` | by how much results of kernels may be off |
//! | `form` | rows of activations as kernels write them |
//! | `matrix` | random operands of products |
//! | `guarded` | buffers with guard bands |
//! | `random` | seeded numbers and blocks |
//!
//! Every comparison is written so that a NaN is red.

pub mod bounds;
pub mod compare;
pub mod form;
pub mod guarded;
pub mod identity;
pub mod matrix;
pub mod parity;
pub mod passage;
pub mod random;
pub mod tolerance;
