//! A GPU for tests: a CPU that plays a kernel's blocks, lane by lane, and checks every word.
//!
//! The same kernel source that becomes PTX runs here. Each lane is a coroutine; words that join
//! lanes are meeting points; memory knows who wrote which byte and whether anything orders that
//! before what happens now. What breaks the rules of the ISA is an [`EmulatorError`] that names
//! the kernel, the block, the lanes, the bytes and the lines. `docs/emulator.md` says what is
//! checked, what cannot be seen, and how everything is counted.
//!
//! ```
//! use gpu::basics::VectorAdd;
//! use gpu::simt::emulator::{Emulator, Memory};
//!
//! let mut memory = Memory::new();
//! let a = memory.input("a", &[1.0_f32; 300]);
//! let b = memory.input("b", &[2.0_f32; 300]);
//! let out = memory.output("out", 300);
//! let counters = Emulator::new().launch(&mut memory, VectorAdd { out, a, b, n: 300 })?;
//! assert_eq!(memory.values(out), [3.0; 300]);
//! assert_eq!(counters.global_stores.bytes, 1200);
//! # Ok::<(), gpu::simt::emulator::EmulatorError>(())
//! ```

mod arithmetic;
mod block;
mod counters;
mod error;
mod launch;
mod mbarrier;
mod memory;
mod shadow;
mod shared;
mod site;
#[cfg(test)]
mod tests;
mod warp;
mod wgmma;
pub mod without;

pub use block::Lane;
pub use counters::{Counters, GlobalTraffic, SharedTraffic};
pub use error::{EmulatorError, Fault, Gathering, Party, Place};
pub use launch::Emulator;
pub use memory::Memory;

use super::Dim3;
