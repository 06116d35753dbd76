//! Experiments with the geometry of `fa_prefill_f16kv`: what the source documents claim of a
//! variant, beside what is seen of it here.
//!
//! | file | what |
//! | --- | --- |
//! | `kernel` | the kernels as values |
//! | `variants` | the experiments: what each changes, and the claims |
//! | `problem` | inputs, and attention in f64 |
//! | `compare` | outputs against the reference and against each other |
//! | `tiles`, `count` | what follows from a geometry; what a tile costs, counted by the emulator |
//! | `timing` | two kernels in turns, and the noise of one against itself |
//! | `machine` | a device, or the emulator with NVIDIA's assembler |
//! | `size` | bytes and tiles of an experiment, before anything is allocated |
//! | `run`, `report` | one experiment, and its tables |
//! | `ledger` | registers, shared memory and traffic of any geometry |

mod compare;
mod count;
mod kernel;
mod ledger;
mod machine;
mod problem;
mod report;
mod run;
mod size;
mod tiles;
pub mod timing;
mod variants;

pub use compare::{Difference, Different, Element, NEAR_ZERO, Off, PARITY, parity};
pub use kernel::Kernel;
pub use ledger::{Ledger, Mismatch};
pub use machine::{Assembled, Emulation, Machine, Taken, Timing};
pub use problem::{Problem, Uploaded};
pub(crate) use report::table;
pub use report::{Format, Report};
pub use run::{Findings, Gate, LENGTHS, Measured, Options, Outcome, PREFIX, run, steps};
pub use size::{EMULATED_BYTES, EMULATED_TILES, HOST_BYTES};
pub use tiles::{Part, Registers, TileCost, Tiles};
pub use variants::{ALL, Claim, Experiment, Metric, Said, Subject};
